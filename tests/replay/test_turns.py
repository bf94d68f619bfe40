"""Turns: what prompts and answers are, and that history only grows."""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache.replay.conversations import Conversation, Message, Role, read_conversations
from prefix_cache.replay.encoding import UTF8_BYTES, Encoding
from prefix_cache.replay.turns import render, tokenize


def chat(*messages: tuple[Role, str], tools: str = "") -> Conversation:
    return Conversation("chat", tools, tuple(Message(role, text) for role, text in messages))


def rendered(*messages: tuple[Role, str], tools: str = "") -> list[tuple[str, str]]:
    return list(render(chat(*messages, tools=tools)))


def test_a_turn_ends_at_each_assistant_message() -> None:
    assert rendered(
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Bye"),
        ("assistant", "See you."),
        tools='["bell"]',
    ) == [
        (
            '<|tools|>\n["bell"]<|end|>\n<|system|>\nBe brief.<|end|>\n'
            "<|user|>\nHi<|end|>\n<|assistant|>\n",
            "Hello.<|end|>\n",
        ),
        ("<|user|>\nBye<|end|>\n<|assistant|>\n", "See you.<|end|>\n"),
    ]


def test_a_user_message_that_nobody_answered_is_a_turn_with_an_empty_answer() -> None:
    """The end mark of the empty answer opens the next prompt: the answer itself has no token."""
    assert rendered(("user", "One"), ("user", "Two"), ("assistant", "2"), ("user", "Three")) == [
        ("<|user|>\nOne<|end|>\n<|assistant|>\n", ""),
        ("<|end|>\n<|user|>\nTwo<|end|>\n<|assistant|>\n", "2<|end|>\n"),
        ("<|user|>\nThree<|end|>\n<|assistant|>\n", ""),
    ]


def test_tool_and_system_messages_belong_to_the_next_prompt() -> None:
    assert rendered(
        ("user", "Add"), ("assistant", "add(1, 2)"), ("tool", "3"), ("assistant", "It is 3.")
    ) == [
        ("<|user|>\nAdd<|end|>\n<|assistant|>\n", "add(1, 2)<|end|>\n"),
        ("<|tool|>\n3<|end|>\n<|assistant|>\n", "It is 3.<|end|>\n"),
    ]
    assert rendered(("user", "A"), ("system", "B"), ("user", "C"), ("assistant", "D")) == [
        ("<|user|>\nA<|end|>\n<|system|>\nB<|end|>\n<|assistant|>\n", ""),
        ("<|end|>\n<|user|>\nC<|end|>\n<|assistant|>\n", "D<|end|>\n"),
    ]


def test_an_assistant_may_begin_and_may_speak_twice() -> None:
    assert rendered(("assistant", "Welcome."), ("assistant", "What is it?")) == [
        ("<|assistant|>\n", "Welcome.<|end|>\n"),
        ("<|assistant|>\n", "What is it?<|end|>\n"),
    ]


def test_what_nobody_answers_after_the_last_answer_is_no_turn() -> None:
    assert len(rendered(("user", "Hi"), ("assistant", "Hello."), ("tool", "late"))) == 1
    assert rendered(("system", "Be brief.")) == []
    assert rendered() == []


def test_five_turns_in_are_five_turns_out() -> None:
    """F037: not the first exchange only, and each prompt extends the one before."""
    exchange: list[tuple[Role, str]] = [("user", "?"), ("assistant", "!")]
    turns = tokenize(chat(*exchange * 5), UTF8_BYTES).turns()
    assert [(turn.conversation, turn.number) for turn in turns] == [
        *(("chat", number) for number in (1, 2, 3, 4, 5))
    ]


def test_the_next_prompt_holds_the_very_ids_that_were_generated() -> None:
    """F038: a tokenizer that joins letters would join them across the end of an answer as well."""

    def pairs(text: str) -> bytes:
        return b"".join(
            zlib.crc32(text[i : i + 2].encode()).to_bytes(4, "little")
            for i in range(0, len(text), 2)
        )

    conversation = chat(("user", "a"), ("assistant", "b"), ("user", "c"), ("assistant", "d"))
    first, second = tokenize(conversation, Encoding("pairs", pairs, bytes.decode)).turns()
    assert second.prompt.startswith(first.prompt + first.answer)

    texts = [text for turn in render(conversation) for text in turn]
    assert not pairs("".join(texts)).startswith(first.prompt + first.answer)


roles: st.SearchStrategy[Role] = st.sampled_from(["system", "user", "assistant", "tool"])


@settings(deadline=None)
@given(st.lists(st.tuples(roles, st.text(max_size=5)), max_size=12), st.text(max_size=5))
def test_every_prompt_begins_with_the_prompt_and_answer_before(
    messages: list[tuple[Role, str]], tools: str
) -> None:
    conversation = chat(*messages, tools=tools)
    assert_append_only(conversation)

    spoken = [role for role, _ in messages if role in ("user", "assistant")]
    unanswered = [
        role
        for role, following in zip(spoken, [*spoken[1:], "user"], strict=False)
        if role == following == "user"
    ]
    assert len(list(render(conversation))) == spoken.count("assistant") + len(unanswered)


def assert_append_only(conversation: Conversation) -> None:
    history = b""
    for turn in tokenize(conversation, UTF8_BYTES).turns():
        assert turn.prompt.startswith(history)
        assert len(turn.prompt) > len(history)
        history = turn.prompt + turn.answer


@pytest.mark.parametrize(
    ("file", "conversations", "turns"),
    [
        ("bfcl_v4_multi_turn_800", 800, 3336),
        ("mt_bench_questions", 80, 160),
        ("oasst_en_100_tree_paths", 626, 1212),
        ("sweagent_mit_trajs", 25, 308),
    ],
)
def test_real_conversations_have_their_turns_and_only_grow(
    shared_data: Path, file: str, conversations: int, turns: int
) -> None:
    read = list(read_conversations(shared_data / "conversations" / f"{file}.jsonl.gz"))
    assert len(read) == conversations
    assert sum(len(list(render(conversation))) for conversation in read) == turns
    for conversation in read:
        assert_append_only(conversation)
