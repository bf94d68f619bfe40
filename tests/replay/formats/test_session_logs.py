"""Logs of sessions, with what engines said of their usage."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.errors import MalformedFile
from prefix_cache.replay.formats import Usage
from tests.replay.formats.files import requests, written

HI = {"role": "user", "content": "Hi"}
HELLO = {"role": "assistant", "content": "Hello"}
BYE = {"role": "user", "content": "Bye"}
USAGE = {"prompt_tokens": 30, "prompt_tokens_details": {"cached_tokens": 16}}
SECOND_PROMPT = "<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n<|user|>\nBye<|end|>\n"


def text(words: bytes) -> str:
    return words[::4].decode()


def test_a_record_is_the_request_that_its_response_answers(tmp_path: Path) -> None:
    record = {
        "session_id": "s",
        "timestamp": "2024-05-01T10:00:00Z",
        "request": {"messages": [HI, HELLO, BYE]},
        "response": {"choices": [{"message": {"content": "See you."}}], "usage": USAGE},
    }

    (request,) = requests(written(tmp_path / "log", record))

    assert (request.conversation, request.turn) == ("s", 2)
    assert text(request.prompt) == SECOND_PROMPT + "<|assistant|>\n"
    assert text(request.answer) == "See you.<|end|>\n"
    assert request.reported == Usage(prompt_tokens=30, cached_tokens=16)


def test_where_the_response_is_not_there_the_answer_is_not_known(tmp_path: Path) -> None:
    (request,) = requests(written(tmp_path / "log", {"messages": [HI, HELLO, BYE], "usage": {}}))

    assert text(request.prompt) == SECOND_PROMPT + "<|assistant|>\n"
    assert (request.answer, request.answer_tokens) == (b"", 0)


def test_a_tool_s_result_waits_for_an_answer_too(tmp_path: Path) -> None:
    call = {"role": "assistant", "tool_calls": [{"name": "clock"}]}
    result = {"role": "tool", "content": "12:00"}

    (request,) = requests(written(tmp_path / "log", {"messages": [HI, call, result], "usage": {}}))

    assert text(request.prompt).endswith("<|tool|>\n12:00<|end|>\n<|assistant|>\n")


def test_single_messages_of_sessions_become_a_request_at_each_answer(tmp_path: Path) -> None:
    """Two sessions in turns; the usage counts what was read from the cache apart."""
    usage = {
        "input_tokens": 4,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 6,
        "output_tokens": 2,
    }
    said: list[tuple[str, dict[str, Any]]] = [
        ("a", HI),
        ("b", HI),
        ("a", {**HELLO, "usage": usage}),
        ("a", BYE),
        ("b", HELLO),
        ("a", HELLO),
    ]
    path = written(
        tmp_path / "log", *({"sessionId": name, "message": message} for name, message in said)
    )

    first, other, second = requests(path)

    assert [first.conversation, other.conversation, second.conversation] == ["a", "b", "a"]
    assert (first.turn, other.turn, second.turn) == (1, 1, 2)
    assert text(second.prompt) == SECOND_PROMPT + "<|assistant|>\n"
    assert first.reported == Usage(prompt_tokens=30, cached_tokens=20)
    assert second.reported is None


def test_a_record_that_is_neither_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "log", {"messages": [HI], "usage": {}}, {"usage": {}})

    with pytest.raises(
        MalformedFile, match='line 2: expected "messages" with a list, or "message"'
    ):
        requests(path)


def test_usage_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "log", {"messages": [HI], "usage": {"prompt_tokens": -4}})

    with pytest.raises(MalformedFile, match="prompt_tokens: expected a whole number from 0"):
        requests(path)


def test_requests_of_a_batch_file_have_their_messages_in_the_body(tmp_path: Path) -> None:
    batch = {"custom_id": "1", "url": "/v1/chat/completions", "body": {"messages": [HI]}}

    (request,) = requests(written(tmp_path / "batch", batch))

    assert text(request.prompt) == "<|user|>\nHi<|end|>\n<|assistant|>\n"


@pytest.mark.parametrize(
    ("usage", "complaint"),
    [
        ({"prompt_tokens": 9, "prompt_tokens_details": [1]}, "expected a JSON object, got a list"),
        ({"prompt_tokens": 9, "cached_tokens": 10}, "cached_tokens: expected a whole number from"),
    ],
)
def test_usage_that_cannot_be_is_refused(tmp_path: Path, usage: Any, complaint: str) -> None:
    path = written(tmp_path / "log", {"messages": [HI, HELLO], "usage": usage})

    with pytest.raises(MalformedFile, match=f"line 1: {complaint}"):
        requests(path)


def test_a_long_session_takes_the_memory_of_its_last_request(tmp_path: Path) -> None:
    """Of 200 turns the prompts together have 80 MB, the last one 0.8."""
    turns = [{**HI, "content": "x" * 500}, {**HELLO, "content": "y" * 500}] * 200
    path = written(tmp_path / "log", {"messages": turns, "usage": {}})

    tracemalloc.start()
    (request,) = requests(path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert request.turn == 200
    assert most < 12_000_000
