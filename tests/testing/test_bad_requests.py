"""Requests that cannot be answered, and paths that are none."""

from __future__ import annotations

from typing import Any

import pytest

from prefix_cache.errors import CannotListen, InvalidArgument
from prefix_cache.testing import EngineConfig, running_engine
from tests.testing.engines import chat_body, engine_client

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        (CHAT, [], "object"),
        (CHAT, {"messages": [{"role": "user", "content": "Hi"}]}, "model"),
        (CHAT, {"model": "test"}, "messages"),
        (CHAT, {"model": "test", "messages": []}, "messages"),
        (CHAT, {"model": "test", "messages": [{"content": "Hi"}]}, "messages[0]"),
        (CHAT, {"model": "test", "messages": ["Hi"]}, "messages[0]"),
        (CHAT, chat_body("Hi", n=2), "n"),
        (CHAT, chat_body("Hi", max_tokens=0), "max_tokens"),
        (CHAT, chat_body("Hi", stream="yes"), "stream"),
        (CHAT, chat_body("Hi", tool_choice="required"), "tools"),
        (CHAT, chat_body("Hi", tool_choice=TOOL), "tools"),
        (CHAT, chat_body("Hi", tools=[{}], tool_choice="required"), "tools"),
        (TEXT, {"model": "test", "prompt": ["one", "two"]}, "prompt"),
        (TEXT, {"model": "test", "prompt": [-1]}, "prompt"),
        (TEXT, {"model": "test", "prompt": ""}, "prompt"),
        ("/v1/responses", {"model": "test"}, "input"),
        ("/v1/embeddings", {"model": "test", "input": [1.5]}, "input"),
        ("/tokenize", {"model": "test", "messages": [1]}, "messages"),
    ],
)
async def test_a_bad_body_is_the_clients_fault(path: str, body: Any, named: str) -> None:
    async with engine_client() as client:
        status, answer = await client.post(path, body)
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert named in answer["error"]["message"]


@pytest.mark.parametrize("data", [b"", b"{", b'{"model": "\xff"}', b'{"model": "\\ud800"}'])
async def test_what_is_no_json_is_the_clients_fault(data: bytes) -> None:
    async with engine_client() as client, client.http.post(CHAT, data=data) as answer:
        assert answer.status == 400
        assert "error" in await answer.json()


@pytest.mark.parametrize("path", [CHAT, TEXT, "/v1/responses", "/v1/embeddings", "/tokenize"])
async def test_another_model_is_not_found(path: str) -> None:
    body = {"model": "other", "messages": [{"role": "user"}], "prompt": "Hi", "input": "Hi"}
    async with engine_client() as client:
        status, answer = await client.post(path, body)
    assert status == 404
    assert answer["error"] == {
        "message": "there is no model 'other', expected 'test'",
        "type": "invalid_request_error",
        "param": "model",
        "code": "model_not_found",
    }


async def test_a_prompt_larger_than_the_memory_is_refused() -> None:
    async with engine_client(num_blocks=4) as client:
        status, answer = await client.post(CHAT, chat_body("x" * 30))
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")
        assert "70" in answer["error"]["message"]
        await client.chat("Hi")


async def test_unknown_paths_and_methods_are_told_in_json() -> None:
    async with engine_client() as client:
        status, answer = await client.post("/v2/chat", {})
        assert (status, answer["error"]["message"]) == (404, "POST /v2/chat: Not Found")
        async with client.http.get(CHAT) as refused:
            assert (refused.status, refused.headers["Allow"]) == (405, "POST")
            assert "error" in await refused.json()


async def test_a_port_in_use_is_told() -> None:
    async with engine_client() as client:
        address = client.engine.url.removeprefix("http://")
        with pytest.raises(CannotListen, match=address):
            async with running_engine(EngineConfig(listen=address)):
                pass


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_settings_out_of_range_are_named(value: float) -> None:
    with pytest.raises(InvalidArgument, match=f"prefill_tokens_per_s is {value}"):
        EngineConfig(prefill_tokens_per_s=value)
    with pytest.raises(InvalidArgument, match=f"decode_s_per_token is {value}"):
        EngineConfig(decode_s_per_token=value)
    with pytest.raises(InvalidArgument, match=f"drain_grace_s is {value}"):
        EngineConfig(drain_grace_s=value)
