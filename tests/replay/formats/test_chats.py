"""Whole conversations: one request a turn."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from prefix_cache.replay.encoding import UTF8_BYTES
from prefix_cache.replay.formats import Request
from tests.replay.formats.files import PAIRS, requests, written


def chat(*texts: str) -> dict[str, object]:
    roles = ("user", "assistant")
    return {
        "messages": [
            {"role": roles[place % 2], "content": text} for place, text in enumerate(texts)
        ]
    }


def test_five_turns_are_five_requests_each_a_strict_extension_of_the_last(tmp_path: Path) -> None:
    """F037: a loader that keeps the first exchange only measures nothing."""
    texts = [f"text {number}" for number in range(10)]

    played = requests(written(tmp_path / "chats", chat(*texts)))

    assert [request.turn for request in played] == [1, 2, 3, 4, 5]
    for one, other in pairwise(played):
        assert other.prompt.startswith(one.prompt + one.answer)
        assert other.prompt_tokens > one.prompt_tokens + one.answer_tokens


def test_long_prompts_are_not_dropped(tmp_path: Path) -> None:
    (request,) = requests(written(tmp_path / "chats", chat("x" * 2_000_000, "y")))

    assert request.prompt_tokens == 2_000_000 + len("<|user|>\n<|end|>\n<|assistant|>\n")


def test_every_token_of_a_prompt_is_in_a_message(tmp_path: Path) -> None:
    record = {**chat("Hi", "Hello", "Bye"), "tools": [{"name": "clock"}]}

    first, second = requests(written(tmp_path / "chats", record))

    tools = len('<|tools|>\n[{"name": "clock"}]<|end|>\n')
    user = len("<|user|>\nHi<|end|>\n")

    def at(request: Request, word: int) -> tuple[int | None, str]:
        span = request.span_at(word)
        assert span is not None
        return span.message, span.role

    assert at(first, 0) == at(first, tools - 1) == (None, "tools")
    assert at(first, tools) == at(first, tools + user - 1) == (0, "user")
    assert at(first, tools + user) == (1, "assistant")
    assert at(second, second.prompt_tokens - 1) == (2, "user")


def test_conversations_are_played_in_rotation(tmp_path: Path) -> None:
    path = written(tmp_path / "chats", chat("a", "b", "c", "d"), chat("a", "b"), chat("e", "f"))

    order = [(request.conversation, request.turn) for request in requests(path, window=2)]

    assert order == [("line 1", 1), ("line 2", 1), ("line 1", 2), ("line 3", 1)]


def test_text_encoded_anew_may_have_other_ids_than_were_generated(
    tmp_path: Path,
) -> None:
    """F038: the answer's ids stay in the id form; from its text, a seam moves them all."""
    path = written(tmp_path / "chats", chat("Hi", "Hello", "Bye!", "."))

    first, second = requests(path, encoding=PAIRS)
    assert second.prompt.startswith(first.prompt + first.answer)
    assert second.reencoded_tokens == 0

    first, second = requests(path, encoding=PAIRS, reencode=True)
    assert not second.prompt.startswith(first.prompt + first.answer)
    history = "<|user|>\nHi<|end|>\n<|assistant|>\nHello<|end|>\n"
    assert second.reencoded_tokens == pytest.approx(len(history) / 2, abs=2)


def test_bytes_are_the_same_in_both_forms(tmp_path: Path) -> None:
    path = written(tmp_path / "chats", chat("Hi", "Hello", "Bye!", "."))

    ids = requests(path, encoding=UTF8_BYTES)
    text = requests(path, encoding=UTF8_BYTES, reencode=True)

    assert [request.prompt for request in ids] == [request.prompt for request in text]


def test_what_changes_from_call_to_call_can_be_made_the_same(tmp_path: Path) -> None:
    def told(clock: str) -> dict[str, object]:
        return {
            "messages": [
                {"role": "system", "content": f"Now: {clock}, id 7."},
                {"role": "user", "content": f"At {clock}?"},
            ]
        }

    path = written(tmp_path / "chats", told("2024-05-01 10:00:01"), told("2024-05-02 11:30:59"))

    one, other = requests(path, normalise=True)

    system = len("<|system|>\nNow: #, id 7.<|end|>\n") * 4
    assert one.prompt[:system] == other.prompt[:system]
    assert one.prompt != other.prompt


@pytest.mark.parametrize("system", ["Be brief.", [{"type": "text", "text": "Be brief."}]])
def test_a_system_prompt_beside_the_messages_stands_before_them(
    tmp_path: Path, system: object
) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    path = written(tmp_path / "chats", {"system": system, "messages": messages})

    (request,) = requests(path)

    assert request.prompt[::4].startswith(b"<|system|>\nBe brief.<|end|>\n<|user|>\nHi")
