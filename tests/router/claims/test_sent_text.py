from __future__ import annotations

import os
import resource

import pytest

from router.claims.sent_text import SentText
from router.claims.text_tree import PIECE_BYTES, TextTree
from router.turn import Prompt


def prompt(text: bytes, tokens: int | None = None) -> Prompt:
    return Prompt(len(text) if tokens is None else tokens, text)


def piece(number: int) -> bytes:
    return b"%064d" % number


def pieces(*numbers: int) -> Prompt:
    """A prompt of these pieces of 64 bytes and the beginning of another; a token is a byte."""
    return prompt(b"".join(map(piece, numbers)) + b"tail")


def sent(*prompts: Prompt, max_pieces: int = 1000) -> SentText:
    memory = SentText("a", max_pieces, TextTree())
    for one in prompts:
        memory.accepted(one)
    return memory


def test_nothing_was_sent_at_first() -> None:
    assert sent().held_tokens(pieces(1, 2, 3)) == 0
    assert sent().held_tokens(prompt(b"", 100)) == 0
    assert sent().held_tokens(prompt(b"abc")) == 0


def test_what_was_sent_is_held_from_its_first_byte_as_far_as_it_is_the_same() -> None:
    memory = sent(pieces(1, 2, 3))
    assert memory.held_tokens(pieces(1, 2, 3)) == 192
    assert memory.held_tokens(pieces(1, 2, 3, 4)) == 192
    assert memory.held_tokens(pieces(1, 2, 4)) == 128
    assert memory.held_tokens(pieces(2, 3)) == 0


def test_pieces_in_the_middle_do_not_count() -> None:
    """One engine has A, another B: B followed by A is worth one piece of B, nothing of A."""
    has_a, has_b = sent(pieces(1, 2)), sent(pieces(3, 4))
    assert has_a.held_tokens(pieces(3, 4, 1, 2)) == 0
    assert has_b.held_tokens(pieces(3, 4, 1, 2)) == 128


def test_tokens_are_in_proportion_to_bytes() -> None:
    text = piece(1) + piece(2)
    memory = sent(prompt(text + b"x" * 64))
    assert memory.held_tokens(Prompt(64, text + b"y" * 128)) == 32


def test_asking_changes_nothing() -> None:
    memory = sent(pieces(1))
    for _ in range(2):
        assert memory.held_tokens(pieces(1, 2, 3)) == 64
    assert len(memory) == 1


def test_what_was_sent_least_recently_goes_first() -> None:
    memory = sent(pieces(1, 2), pieces(3, 4), pieces(1, 2), pieces(5, 6), max_pieces=4)
    assert memory.held_tokens(pieces(1, 2)) == 128
    assert memory.held_tokens(pieces(3, 4)) == 0


def test_of_a_text_above_the_bound_the_beginning_is_remembered() -> None:
    memory = sent(pieces(1, 2, 3, 4, 5, 6), max_pieces=4)
    assert memory.held_tokens(pieces(1, 2, 3, 4, 5, 6)) == 256


KEPT, UNKEPT, SHORT = (4_096, 2_048), (4_096, 2_047), (1_023, 0)
"""Tokens promised and delivered."""


@pytest.mark.parametrize(
    ("words", "has_lost"),
    [
        ([KEPT] * 9, False),
        ([UNKEPT], False),  # it may have evicted that one
        ([UNKEPT, UNKEPT], True),
        ([UNKEPT, KEPT, UNKEPT, KEPT], False),
        ([UNKEPT, SHORT, UNKEPT], True),  # the short one says nothing
        ([SHORT] * 9, False),  # its blocks may be of 512 tokens
        ([(1_024, 0)] * 2, True),
        ([(0, 0), (0, 500)], False),
    ],
)
def test_an_engine_that_breaks_two_promises_in_a_row_has_lost_what_others_sent(
    words: list[tuple[int, int]], has_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    memory = sent(pieces(1, 2, 3, 4), pieces(7, 8))
    said = [memory.served(pieces(7, 8), *word) for word in words]
    assert said == [False] * (len(words) - 1) + [has_lost]
    assert memory.held_tokens(pieces(1, 2, 3, 4)) == (0 if has_lost else 256)
    assert memory.held_tokens(pieces(7, 8)) == 128
    assert memory.times_forgotten == has_lost
    assert caplog.text.count("what was sent there is forgotten") == has_lost


def test_after_that_it_begins_with_a_clean_sheet() -> None:
    memory = sent(pieces(1))
    assert [memory.served(pieces(1), *UNKEPT) for _ in range(4)] == [False, True, False, True]
    memory.served(pieces(1), *UNKEPT)
    memory.clear()
    assert not memory.served(pieces(1), *UNKEPT)


def test_a_hundred_sessions_are_forgotten_by_the_second_turn_after_a_silent_wipe() -> None:
    sessions = [pieces(*range(20 * number, 20 * number + 20)) for number in range(100)]
    memory = sent(*sessions, max_pieces=10_000)
    for session in sessions[:2]:
        memory.accepted(session)
        memory.served(session, memory.held_tokens(session), 0)
    assert [memory.held_tokens(session) for session in sessions] == [0, 1_280] + [0] * 98


def test_when_cleared_nothing_is_held() -> None:
    memory = sent(pieces(1, 2))
    memory.clear()
    assert memory.held_tokens(pieces(1, 2)) == 0


def test_memory_is_flat_under_a_burst_of_long_prompts() -> None:
    memory = SentText("a", 4096, TextTree())
    body = os.urandom(256 * PIECE_BYTES)

    def burst(count: int) -> None:
        for number in range(count):
            memory.accepted(prompt(piece(number) + body))

    burst(1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    burst(4000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024
    assert len(memory) <= 4096
