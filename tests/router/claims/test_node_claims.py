from __future__ import annotations

import pytest

from prefix_cache import Identity
from prefix_cache.client import NodeEvent
from prefix_cache.errors import EventGap
from prefix_cache.index import BlocksStored, Cleared
from router.claims.claims import NoClaims
from router.claims.node_claims import NodeClaims, block_size_of
from router.claims.sent_text import SentText
from router.claims.text_tree import TextTree
from router.turn import Prompt

CHAIN = tuple(b"block %04d" % number for number in range(8))
BOTH = Prompt(129, b"x" * 260, CHAIN, 16)
TEXT = Prompt(129, b"x" * 260)
LONG = Prompt(5_000, b"y" * 20_000)


def claims() -> NodeClaims:
    return NodeClaims(SentText("a", 1000, TextTree()))


def claims_of_blocks() -> NodeClaims:
    """Of a node that told that it holds the first four blocks."""
    of = claims()
    of.held.apply(NodeEvent(1, 1, BlocksStored(CHAIN[:4], None, b"", 16, (), Identity("m"))))
    return of


def test_a_prompt_with_hashes_is_looked_up_in_blocks_where_these_are_told() -> None:
    of = claims_of_blocks()
    assert (of.exact, of.is_told(BOTH), of.is_told(TEXT)) == (True, True, False)
    assert of.held_tokens(BOTH) == 64
    assert of.held_tokens(TEXT) == 0
    of.served(BOTH, 64, 32)
    assert of.held_tokens(BOTH) == 32


def test_else_it_is_looked_up_by_its_text() -> None:
    of = claims()
    of.accepted(BOTH)
    assert (of.exact, of.is_told(BOTH)) == (False, False)
    assert of.held_tokens(BOTH) == of.held_tokens(TEXT) == 127


def test_when_blocks_are_not_told_any_more_the_text_is_still_known() -> None:
    of = claims_of_blocks()
    of.accepted(BOTH)
    assert of.held_tokens(BOTH) == 64
    with pytest.raises(EventGap):
        of.held.apply(NodeEvent(1, 3, Cleared()))
    assert (of.exact, of.held_tokens(BOTH)) == (False, 127)
    of.held.clear()
    assert (of.exact, of.held_tokens(BOTH)) == (False, 127)


def test_an_engine_that_makes_other_tokens_is_known_by_text() -> None:
    of = claims_of_blocks()
    of.tokens_differ = True
    assert (of.exact, of.held_tokens(BOTH)) == (False, 0)


def test_an_engine_that_always_says_that_nothing_was_cached_does_not_count() -> None:
    of = claims()
    of.accepted(LONG)
    assert [of.served(LONG, 5_000, 0) for _ in range(5)] == [False] * 5
    assert of.held_tokens(LONG) == 4_992
    assert of.sent.times_forgotten == 0

    of.served(LONG, 5_000, 4_992)
    assert [of.served(TEXT, 5_000, 0) for _ in range(2)] == [False, True]
    assert of.held_tokens(LONG) == 0


def test_an_engine_that_says_nothing_breaks_no_promise() -> None:
    of = claims_of_blocks()
    of.accepted(TEXT)
    for asked in (BOTH, TEXT, BOTH, TEXT):
        of.served(asked, 4_000, 64)
        of.served(asked, 4_000, None)
    assert (of.held_tokens(BOTH), of.held_tokens(TEXT)) == (64, 127)


def test_of_an_unhashable_prompt_nothing_is_claimed_or_kept() -> None:
    of = claims_of_blocks()
    of.accepted(Prompt(100))
    assert of.held_tokens(Prompt(100)) == 0
    assert len(of.sent) == 0


def test_clear_drops_both() -> None:
    of = claims_of_blocks()
    of.accepted(TEXT)
    of.clear()
    assert (of.held_tokens(BOTH), of.held_tokens(TEXT)) == (0, 0)


def test_the_block_size_of_a_pool_is_the_first_that_a_node_said() -> None:
    silent, says = claims(), claims()
    says.block_size = 32
    assert block_size_of([NoClaims(), silent, says]) == 32
    assert block_size_of([NoClaims(), silent]) == 0
