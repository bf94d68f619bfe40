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
        memory.served(one, 0, None)
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


@pytest.mark.parametrize(
    ("promised", "delivered", "left"),
    [
        (256, None, 256),  # it does not say
        (256, 256, 256),
        (256, 128, 256),  # half may be the engine's evictions
        (256, 127, 0),
        (256, 0, 0),
        (60, 0, 256),  # no more than the engine rounds off
        (0, 0, 256),
    ],
)
def test_an_engine_that_delivers_less_than_half_has_lost_what_others_sent(
    promised: int, delivered: int | None, left: int, caplog: pytest.LogCaptureFixture
) -> None:
    memory = sent(pieces(1, 2, 3, 4))
    memory.served(pieces(7, 8), promised, delivered)
    assert memory.held_tokens(pieces(1, 2, 3, 4)) == left
    assert memory.held_tokens(pieces(7, 8)) == 128
    assert memory.times_forgotten == (0 if left else 1)
    assert ("what was sent there is forgotten" in caplog.text) == (left == 0)


def test_a_hundred_sessions_are_forgotten_by_the_first_turn_after_a_silent_wipe() -> None:
    sessions = [pieces(number, number + 1, number + 2) for number in range(0, 300, 3)]
    memory = sent(*sessions)
    memory.served(sessions[0], memory.held_tokens(sessions[0]), 0)
    assert [memory.held_tokens(session) for session in sessions] == [192] + [0] * 99


def test_when_cleared_nothing_is_held() -> None:
    memory = sent(pieces(1, 2))
    memory.clear()
    assert memory.held_tokens(pieces(1, 2)) == 0


def test_memory_is_flat_under_a_burst_of_long_prompts() -> None:
    memory = SentText("a", 4096, TextTree())
    body = os.urandom(256 * PIECE_BYTES)

    def burst(count: int) -> None:
        for number in range(count):
            memory.served(prompt(piece(number) + body), 0, None)

    burst(1000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    burst(4000)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024
    assert len(memory) <= 4096
