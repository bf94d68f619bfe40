"""A worker that serves: clients that leave, the paths beside the answers, its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp
import openai
import pytest

from prefix_cache.worker.config import WorkerConfig
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.serving import serving_worker
from prefix_cache.worker.tokenizer import Tokenizer
from tests.prometheus import described, documented, values
from tests.testing.engines import until
from tests.worker.served import CHAT, MODEL, TEXT, Client, served

# An answer that does not end on its own while a test runs.
LONG = {"model": MODEL, "prompt": "Once", "ignore_eos": True, "max_tokens": 8000}
ROOM = EngineConfig(max_model_len=8192)


async def metrics(client: Client) -> str:
    async with client.http.get("/metrics") as answer:
        assert answer.status == 200
        return await answer.text()


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_ends_its_answer(shared_data: Path, stream: bool) -> None:
    async with served(shared_data, ROOM, num_blocks=600) as client:
        engine = client.engine
        asking = asyncio.create_task(client.http.post(TEXT, json={**LONG, "stream": stream}))
        await until(lambda: engine.stats.generated_tokens > 3)
        if stream:
            (await asking).close()
        else:
            asking.cancel()
        await until(lambda: not engine.has_work)
        assert engine.stats.generated_tokens < 8000
        assert engine.memory_use().blocks == 0
        found = values(await metrics(client))
    assert found["prefix_cache_worker_requests_total{outcome=cancelled}"] == 1
    assert found["prefix_cache_worker_live_requests{state=running}"] == 0


async def test_others_are_served_while_it_computes(shared_data: Path) -> None:
    async with served(shared_data, ROOM, num_blocks=600) as client:
        stats = client.engine.stats
        asking = asyncio.create_task(client.http.post(TEXT, json=LONG))
        await until(lambda: stats.running == 1)
        async with client.http.get("/health") as answer:
            assert (answer.status, await answer.json()) == (200, {"status": "ok"})
        beside = await client.complete("Once upon a time", max_tokens=11)
        assert beside["choices"][0]["text"] == ", there was a little girl named Lily."
        assert not asking.done()
        asking.cancel()


async def test_a_worker_that_ends_lets_answers_end(shared_data: Path) -> None:
    config = WorkerConfig(model=shared_data / "models" / MODEL, num_blocks=64)
    async with aiohttp.ClientSession() as http:
        async with serving_worker(config) as serving:
            body = {**LONG, "max_tokens": 200}
            asking = asyncio.create_task(http.post(serving.url + TEXT, json=body))
            await until(lambda: serving.async_engine.engine.stats.running == 1)
        answer = await (await asking).json()
    assert answer["usage"]["completion_tokens"] == 200


async def test_answers_that_outlast_the_drain_are_cut(shared_data: Path) -> None:
    model = shared_data / "models" / MODEL
    config = WorkerConfig(model=model, num_blocks=600, drain_grace_s=0.05, engine=ROOM)
    async with aiohttp.ClientSession() as http:
        async with serving_worker(config) as serving:
            asking = asyncio.create_task(http.post(serving.url + TEXT, json=LONG))
            await until(lambda: serving.async_engine.engine.stats.running == 1)
        with pytest.raises(aiohttp.ClientError):
            await asking


async def test_a_fault_in_a_step_fails_all_requests_and_is_seen_by_probes(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(engine: Engine) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Engine, "step", step)
    config = WorkerConfig(model=shared_data / "models" / MODEL, num_blocks=64)
    async with serving_worker(config) as serving, aiohttp.ClientSession(serving.url) as http:
        for _ in range(2):
            async with http.post(TEXT, json={"model": MODEL, "prompt": "a"}) as answer:
                assert answer.status == 503
                assert (await answer.json())["error"]["message"] == "the engine has failed"
        async with http.get("/health") as probe:
            assert probe.status == 503
        with pytest.raises(ZeroDivisionError):
            await serving.async_engine.failed()


async def test_a_stream_that_breaks_off_says_why(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(shared_data, ROOM, num_blocks=600) as client:
        stream = await client.openai.completions.create(
            model=MODEL,
            prompt="Once",
            max_tokens=8000,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        await anext(stream)

        def step(engine: Engine) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(Engine, "step", step)
        with pytest.raises(openai.APIError, match="the engine has failed"):
            async for _ in stream:
                pass
        found = values(await metrics(client))
    assert found["prefix_cache_worker_requests_total{outcome=failed}"] == 1
    assert found["prefix_cache_worker_requests_total{outcome=served}"] == 0


async def test_a_fault_of_ours_has_the_form_of_an_error(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def encode(self: Tokenizer, text: str, *, bos: bool) -> list[int]:
        raise ZeroDivisionError

    monkeypatch.setattr(Tokenizer, "encode", encode)
    async with served(shared_data) as client:
        status, answer = await client.post(TEXT, prompt="a")
    assert status == 500
    assert answer["error"]["type"] == "server_error"
    assert "ZeroDivisionError" in caplog.text


async def test_the_model_is_told_with_the_length_that_it_serves(shared_data: Path) -> None:
    async with served(shared_data, name="hub/stories") as client:
        [listed] = (await client.openai.models.list()).data
        one = await client.openai.models.retrieve("hub/stories")
    assert listed == one
    assert (listed.id, (listed.model_extra or {})["max_model_len"]) == ("hub/stories", 512)


async def test_tokenize_says_the_tokens_that_a_request_is_made_of(shared_data: Path) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    async with served(shared_data) as client:
        _, text = await client.post("/tokenize", prompt="Once upon a time")
        _, bare = await client.post("/tokenize", prompt="Once upon", add_special_tokens=False)
        _, chat = await client.post("/tokenize", messages=messages)
        _, answer = await client.post(CHAT, messages=messages, max_tokens=1, return_token_ids=True)
    assert text == {"count": 5, "max_model_len": 512, "tokens": [1, 403, 407, 261, 378]}
    assert bare["tokens"] == [403, 407]
    assert chat["tokens"] == answer["prompt_token_ids"]


async def test_metrics_are_those_that_are_described(shared_data: Path) -> None:
    async with served(shared_data, host_blocks=2) as client:
        await client.complete("Once upon a time" * 8, max_tokens=4)
        await client.complete("Once upon a time" * 8, max_tokens=4)
        await client.post(TEXT, prompt=[])
        text = await metrics(client)
    assert described(text) == documented("Metrics of a worker")
    found = values(text)
    assert {
        kind: found[f"prefix_cache_worker_tokens_total{{kind={kind}}}"]
        for kind in ("prompt", "cached", "loaded", "prefilled", "recomputed", "generated")
    } == {
        "prompt": 94,
        "cached": 32,
        "loaded": 0,
        "prefilled": 62,
        "recomputed": 0,
        "generated": 8,
    }
    assert found["prefix_cache_worker_requests_total{outcome=served}"] == 2
    assert found["prefix_cache_worker_requests_total{outcome=failed}"] == 1
    assert found["prefix_cache_worker_first_token_seconds_count"] == 2
    assert found["prefix_cache_worker_kv_bytes{place=host}"] == 2 * 20_480
