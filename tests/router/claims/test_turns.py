"""Turns that do not line up: what a router that knows only text claims of them."""

from __future__ import annotations

from router.claims.sent_text import SentText
from router.claims.text_tree import TextTree
from router.prompts import BodyReader
from router.turn import Prompt
from tests.router.prompts.readers import (
    COMPLETIONS,
    Message,
    assistant,
    read,
    reader,
    system,
    user,
)

STABLE = "You are a helpful assistant. " * 100


def prompt(*messages: Message, by: BodyReader | None = None) -> Prompt:
    return read({"messages": messages}, by=by).prompt


def held_after(first: Prompt, second: Prompt) -> int:
    """Bytes of the second that were claimed after the first was served."""
    memory = SentText("a", 1000, TextTree())
    memory.accepted(first)
    return memory.held_tokens(Prompt(len(second.text), second.text))


def common_bytes(first: Prompt, second: Prompt) -> int:
    pairs = zip(first.text, second.text, strict=False)
    return next(place for place, (one, other) in enumerate(pairs) if one != other)


def test_a_turn_that_goes_on_is_claimed_up_to_its_new_message() -> None:
    first = prompt(system(STABLE), user("hi"))
    second = prompt(system(STABLE), user("hi"), assistant("hello"), user("more"))
    assert held_after(first, second) == len(first.text) // 64 * 64


def test_a_time_of_day_in_the_system_prompt_leaves_what_stands_before_it() -> None:
    first = prompt(system("It is a fine day. At 12:00:01. " + STABLE), user("hi"))
    second = prompt(system("It is a fine day. At 12:00:02. " + STABLE), user("hi"))
    assert held_after(first, second) == 64
    assert common_bytes(first, second) < 128


def test_reasoning_taken_out_of_an_earlier_answer_ends_the_claim_there() -> None:
    answer = "<think>" + "well " * 100 + "</think>yes"
    first = prompt(system(STABLE), user("hi"), assistant(answer), user("more"))
    second = prompt(system(STABLE), user("hi"), assistant("yes"), user("more"), user("again"))
    assert held_after(first, second) == common_bytes(first, second) // 64 * 64


def test_an_option_that_changes_the_head_leaves_nothing() -> None:
    body = {"messages": [system(STABLE), user("hi")]}
    other = {**body, "chat_template_kwargs": {"enable_thinking": False}}
    assert held_after(read(body).prompt, read(other).prompt) == 0


def test_another_salt_or_model_leaves_nothing() -> None:
    by, body = reader(), {"messages": [system(STABLE), user("hi")]}
    first = read({**body, "cache_salt": "s1"}, by=by).prompt
    for other in ({"cache_salt": "s2"}, {}, {"cache_salt": "s1", "model": "other"}):
        assert held_after(first, read({**body, **other}, by=by).prompt) == 0


def test_what_was_sent_is_claimed_at_the_beginning_of_a_prompt_only() -> None:
    """F031: blocks hashed alone, not chained, are found anywhere."""
    of_a, of_b, of_b_then_a = (
        read({"prompt": text}, COMPLETIONS).prompt
        for text in ("a" * 600, "b" * 600, "b" * 600 + "a" * 600)
    )
    assert held_after(of_b, of_b_then_a) == len(of_b.text) // 64 * 64
    assert held_after(of_a, of_b_then_a) == 0
