"""The plain chat template: what an engine and a router both make of a chat."""

from __future__ import annotations

from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.plain_template import render, response_messages, utf8_tokens

HI = {"role": "user", "content": "Hi"}


def test_messages_follow_each_other_and_the_answer_begins() -> None:
    chat = [{"role": "system", "content": "Be brief."}, HI]
    assert render(chat) == "<|system|>\nBe brief.\n<|user|>\nHi\n<|assistant|>\n"
    assert render(chat, add_generation_prompt=False) == "<|system|>\nBe brief.\n<|user|>\nHi\n"


def test_a_turn_extends_the_turn_before_it_and_its_answer() -> None:
    answer = {"role": "assistant", "content": "Hello!"}
    assert render([HI, answer, HI]).startswith(render([HI]) + "Hello!\n")


def test_a_call_of_a_tool_extends_the_prompt_by_its_json() -> None:
    calls = [{"type": "function", "id": "c1", "function": {"name": "f", "arguments": "{}"}}]
    called = {"role": "assistant", "content": None, "tool_calls": calls}
    said = '[{"function":{"arguments":"{}","name":"f"},"id":"c1","type":"function"}]'
    assert render([HI, called, HI]).startswith(render([HI]) + said + "\n")


def test_tools_stand_first_the_same_however_their_keys_are_ordered() -> None:
    one, other = {"type": "function", "name": "f"}, {"name": "f", "type": "function"}
    assert render([HI], [one]) == render([HI], [other])
    assert render([HI], [one]).startswith('<|tools|>\n[{"name":"f","type":"function"}]\n<|user|>')


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}, "c"], "abc"),
        ([{"type": "image_url", "image_url": {"url": "x"}}], '{"image_url":{"url":"x"},"type":'),
        ({"text": "a"}, '{"text":"a"}'),
    ],
)
def test_content_is_text_or_parts(content: Any, text: str) -> None:
    assert render([{"role": "user", "content": content}]).startswith(f"<|user|>\n{text}")


@pytest.mark.parametrize("message", [None, "Hi", {}, {"content": "Hi"}, {"role": 1}])
def test_what_is_no_message_is_named(message: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"messages\[1\] has no role"):
        render([HI, message])


def test_a_response_is_a_chat() -> None:
    system = {"role": "system", "content": "Be brief."}
    assert response_messages("Be brief.", "Hi") == [system, HI]
    assert response_messages(None, [HI]) == [HI]
    call = {"type": "function_call", "name": "f"}
    output = {"type": "function_call_output", "output": "42"}
    assert response_messages(None, [HI, call, output]) == [
        HI,
        {"role": "assistant", "content": '{"name":"f","type":"function_call"}'},
        {"role": "tool", "content": '{"output":"42","type":"function_call_output"}'},
    ]


def test_a_token_is_a_byte() -> None:
    assert utf8_tokens("aé") == b"\x61\0\0\0\xc3\0\0\0\xa9\0\0\0"
