"""The paths beside those that generate."""

from __future__ import annotations

from tests.testing.engines import chat_body, engine_client

TOOL = {"type": "function", "function": {"name": "look"}}


async def test_tokenize_says_the_tokens_that_a_chat_is_made_of() -> None:
    body = chat_body("Hi", tools=[TOOL])
    async with engine_client() as client:
        _, said = await client.post("/tokenize", body)
        _, without_answer = await client.post("/tokenize", {**body, "add_generation_prompt": False})
        answer = await client.chat("Hi", tools=[TOOL])
    rendered = (
        '<|tools|>\n[{"function":{"name":"look"},"type":"function"}]\n<|user|>\nHi\n<|assistant|>\n'
    )
    assert bytes(said["tokens"]).decode() == rendered
    assert said["count"] == answer["usage"]["prompt_tokens"] == len(rendered)
    assert bytes(without_answer["tokens"]).decode() == rendered.removesuffix("<|assistant|>\n")


async def test_tokenize_says_the_tokens_of_a_text() -> None:
    async with engine_client(num_blocks=4) as client:
        _, said = await client.post("/tokenize", {"model": "test", "prompt": "é"})
    assert said == {"count": 2, "max_model_len": 64, "tokens": [0xC3, 0xA9]}


async def test_models_are_told_one_by_one_too() -> None:
    async with engine_client(model="llama") as client:
        (listed,) = (await client.get("/v1/models"))["data"]
        assert await client.get("/v1/models/llama") == listed
        assert (listed["id"], listed["object"]) == ("llama", "model")
        async with client.http.get("/v1/models/other") as answer:
            assert answer.status == 404


async def test_an_engine_that_serves_is_well_and_counts() -> None:
    async with engine_client() as client:
        assert await client.get("/health") == {"status": "ok"}
        for question in ("a" * 48, "a" * 48):
            await client.chat(question)
        await client.post("/v1/embeddings", {"model": "test", "input": "a"})
        await client.post("/v1/chat/completions", {"model": "other", "messages": [{}]})
        async with client.http.get("/metrics") as answer:
            lines = (await answer.text()).splitlines()
    assert 'prefix_cache_engine_requests_total{outcome="served"} 3.0' in lines
    assert 'prefix_cache_engine_requests_total{outcome="failed"} 1.0' in lines
    assert "prefix_cache_engine_in_flight 0.0" in lines
    assert "prefix_cache_engine_prompt_tokens_total 144.0" in lines
    assert "prefix_cache_engine_cached_tokens_total 64.0" in lines
