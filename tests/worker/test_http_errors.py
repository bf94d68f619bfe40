"""Requests that cannot be answered are the client's to mend: each error names what and how."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.tokenizer import Tokenizer
from tests.testing.engines import until
from tests.worker.served import CHAT, MODEL, TEXT, served

ASKED = [{"role": "user", "content": "Hi"}]
TOOL = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize(
    ("path", "body", "param", "message"),
    [
        (TEXT, {}, "prompt", "missing required field `prompt`"),
        (CHAT, {}, "messages", "missing required field `messages`"),
        (CHAT, {"messages": []}, "messages", "length >= 1"),
        (CHAT, {"messages": ["Hi"]}, "messages", "Expected `object`"),
        (CHAT, {"messages": ASKED, "stream": "yes"}, "stream", "Expected `bool"),
        (TEXT, {"prompt": []}, "prompt", "the prompt is empty, expected at least one token"),
        (TEXT, {"prompt": [-1]}, "prompt", ">= 0"),
        (TEXT, {"prompt": [1, 512]}, "prompt", "512, expected 0"),
        (TEXT, {"prompt": ["a", 1]}, "prompt", "a list of token ids and of prompts, expected one"),
        (TEXT, {"prompt": [[1], [-1]]}, "prompt", ">= 0"),
        (TEXT, {"prompt": ["a"] * 513}, "prompt", "513 prompts, expected at most 512"),
        (TEXT, {"prompt": "a", "max_tokens": 0}, "max_tokens", ">= 1"),
        (TEXT, {"prompt": "a", "max_tokens": 511}, "max_tokens", "at most 510 fit"),
        (TEXT, {"prompt": "a", "temperature": 2.5}, "temperature", "2.5, expected a number from"),
        (TEXT, {"prompt": "a", "temperature": -1}, "temperature", "-1.0"),
        (TEXT, {"prompt": "a", "temperature": "hot"}, "temperature", "Expected `float"),
        (TEXT, {"prompt": "a", "top_p": 0}, "top_p", "0.0, expected a number above 0"),
        (TEXT, {"prompt": "a", "seed": 2**63}, "seed", "9223372036854775808"),
        (TEXT, {"prompt": "a", "stop": ["a", ""]}, "stop", "none of them empty"),
        (TEXT, {"prompt": "a", "stop": ["a"] * 17}, "stop", "at most 16"),
        (TEXT, {"prompt": "a", "stop": ""}, "stop", "none of them empty"),
        (TEXT, {"prompt": "a", "cache_salt": "s" * 1025}, "cache_salt", "length <= 1024"),
        (CHAT, {"messages": [{}]}, "messages", "messages[0] has no role"),
        (TEXT, {"prompt": "a", "n": 0}, "n", ">= 1"),
        (TEXT, {"prompt": "a", "n": 17}, "n", "n is 17, expected at most 16"),
        (TEXT, {"prompt": "a", "n": 2**40}, "n", "n is 1099511627776, expected at most 16"),
        (TEXT, {"prompt": "a", "n": 17, "use_beam_search": True}, "n", "expected at most 16"),
        (TEXT, {"prompt": "a", "logprobs": 3}, "logprobs", "which this worker does not do"),
        (TEXT, {"prompt": "a", "best_of": 4}, "best_of", "which this worker does not do"),
        (TEXT, {"prompt": "a", "min_tokens": 2}, "min_tokens", "which this worker does not do"),
        (TEXT, {"prompt": "a", "stop_token_ids": [5]}, "stop_token_ids", "[5], which this worker"),
        (
            TEXT,
            {"prompt": "a", "skip_special_tokens": False},
            "skip_special_tokens",
            "False, which",
        ),
        ("/tokenize", {}, None, "Expected one of `prompt` and `messages`"),
        (
            "/tokenize",
            {"messages": ASKED, "add_generation_prompt": False},
            "add_generation_prompt",
            "False, which this worker does not do",
        ),
        (CHAT, {"messages": ASKED, "tool_choice": TOOL, "tools": [TOOL]}, "tool_choice", "look"),
    ],
)
async def test_a_bad_field_is_named(
    shared_data: Path, path: str, body: dict[str, Any], param: str | None, message: str
) -> None:
    async with served(shared_data) as client:
        status, answer = await client.post(path, **body)
    assert status == 400
    assert client.engine.stats.steps == 0
    error = answer["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert message in error["message"]


async def test_an_empty_text_is_the_token_that_begins_all(shared_data: Path) -> None:
    async with served(shared_data) as client:
        answer = await client.complete("", max_tokens=1)
    assert answer["choices"][0]["prompt_token_ids"] == [1]


async def test_a_field_that_changes_nothing_is_no_error(shared_data: Path) -> None:
    neutral: dict[str, Any] = {
        "logprobs": None,
        "presence_penalty": 0,
        "top_k": -1,
        "best_of": 1,
        "min_tokens": 0,
        "stop": [],
        "cache_salt": None,
        "ignore_eos": None,
        "user": "me",
    }
    async with served(shared_data) as client:
        status, _ = await client.post(TEXT, prompt="a", **neutral)
    assert status == 200


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"model": "\xff"}',
        b'{"model": "\\ud800"}',
        b'{"model": "stories260K", "prompt": "a", "\xff": 1}',
        b'{"model": "stories260K", "prompt": "a", "metadata": ' + DEEP + b"}",
    ],
    ids=["empty", "cut", "list", "bytes", "surrogate", "bytes in an unknown field", "deep"],
)
async def test_what_is_no_json_object_in_utf8_is_told(shared_data: Path, data: bytes) -> None:
    async with served(shared_data) as client, client.http.post(TEXT, data=data) as answer:
        assert answer.status == 400
        assert "the body cannot be used" in (await answer.json())["error"]["message"]


async def test_another_model_is_not_found(shared_data: Path) -> None:
    async with served(shared_data, name="mine") as client:
        with pytest.raises(openai.NotFoundError, match=f"no model '{MODEL}', expected 'mine'"):
            await client.openai.completions.create(model=MODEL, prompt="a")
        assert (await client.openai.completions.create(model="mine", prompt="a")).model == "mine"


async def test_a_body_that_cannot_be_unpacked_is_told(shared_data: Path) -> None:
    packed = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    async with (
        served(shared_data) as client,
        client.http.post(TEXT, data=b"no gzip", headers=packed) as answer,
    ):
        assert answer.status == 400
        message = (await answer.json())["error"]["message"]
    assert message.startswith("the body cannot be read")


async def test_a_prompt_longer_than_the_context_is_told_the_number_that_fits(
    shared_data: Path,
) -> None:
    async with served(shared_data) as client:
        status, answer = await client.post(TEXT, prompt=[1] * 512)
        longest, _ = await client.post(TEXT, prompt=[1] * 511, max_tokens=1)
    assert (status, longest) == (400, 200)
    assert answer["error"] == {
        "message": "the prompt has 512 tokens, at most 511 fit",
        "type": "invalid_request_error",
        "param": "prompt",
        "code": "context_length_exceeded",
    }


@pytest.mark.parametrize(
    ("path", "field"), [(TEXT, "prompt"), (CHAT, "messages"), ("/tokenize", "prompt")]
)
async def test_a_text_that_can_never_fit_is_refused_without_being_tokenized(
    shared_data: Path, monkeypatch: pytest.MonkeyPatch, path: str, field: str
) -> None:
    def encode(self: Tokenizer, text: str, *, bos: bool) -> list[int]:
        raise AssertionError

    monkeypatch.setattr(Tokenizer, "encode", encode)
    text = "Once upon a time " * 1000
    given = [{"role": "user", "content": text}] if field == "messages" else text
    async with served(shared_data) as client:
        status, answer = await client.post(path, **{field: given})
    assert status == 400
    error = answer["error"]
    assert (error["param"], error["code"]) == (field, "context_length_exceeded")
    assert "characters, at most 511 tokens fit" in error["message"]


async def test_a_prompt_longer_than_the_memory_is_told_the_number_that_fits(
    shared_data: Path,
) -> None:
    async with served(shared_data, num_blocks=4) as client:
        status, answer = await client.post(TEXT, prompt=[1] * 65)
        longest, _ = await client.post(TEXT, prompt=[1] * 64, max_tokens=1)
    assert (status, longest) == (400, 200)
    assert answer["error"]["code"] == "context_length_exceeded"
    assert answer["error"]["message"] == "the prompt has 65 tokens, at most 64 fit"


async def test_a_stream_that_cannot_begin_has_a_status_of_its_own(shared_data: Path) -> None:
    async with served(shared_data, engine=EngineConfig(max_n=2)) as client:
        with pytest.raises(openai.BadRequestError, match="n is 3, expected at most 2") as raised:
            await client.openai.completions.create(model=MODEL, prompt="a", n=3, stream=True)
    assert raised.value.param == "n"


async def test_one_of_several_prompts_that_cannot_be_answered_fails_them_all(
    shared_data: Path,
) -> None:
    async with served(shared_data) as client:
        status, answer = await client.post(TEXT, prompt=[[1] * 16, [1] * 512], max_tokens=400)
        await until(lambda: not client.engine.has_work)
        assert client.engine.memory_use().blocks == 0
    assert status == 400
    assert answer["error"]["param"] == "prompt"
    assert answer["error"]["message"] == "the prompt has 512 tokens, at most 511 fit"
    assert client.engine.stats.generated_tokens < 10


async def test_unknown_paths_are_told_in_json(shared_data: Path) -> None:
    async with served(shared_data) as client:
        status, answer = await client.post("/v2/chat")
    assert (status, answer["error"]["message"]) == (404, "POST /v2/chat: Not Found")
