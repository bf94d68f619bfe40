from __future__ import annotations

from prefix_cache import Identity
from prefix_cache.client import NodeEvent
from prefix_cache.index import BlocksStored
from router.claims.claims import NoClaims
from router.claims.node_claims import NodeClaims, block_size_of
from router.claims.sent_text import SentText
from router.claims.text_tree import TextTree
from router.turn import Prompt

CHAIN = tuple(b"block %04d" % number for number in range(8))
BOTH = Prompt(129, b"x" * 260, CHAIN, 16)
TEXT = Prompt(129, b"x" * 260)


def claims(*, exact: bool) -> NodeClaims:
    of = NodeClaims(SentText("a", 100, TextTree()))
    of.exact = exact
    return of


def test_a_prompt_with_hashes_is_looked_up_in_blocks_where_these_can_be_known() -> None:
    of = claims(exact=True)
    of.held.apply(NodeEvent(1, 1, BlocksStored(CHAIN[:4], None, b"", 16, (), Identity("m"))))
    assert of.held_tokens(BOTH) == 64
    assert of.held_tokens(TEXT) == 0
    of.served(BOTH, 64, 32)
    assert of.held_tokens(BOTH) == 32
    assert len(of.sent) == 0


def test_else_it_is_looked_up_by_its_text() -> None:
    of = claims(exact=False)
    of.served(BOTH, 0, None)
    assert of.held_tokens(BOTH) == of.held_tokens(TEXT) == 127


def test_of_an_unhashable_prompt_nothing_is_claimed_or_kept() -> None:
    of = claims(exact=True)
    of.served(Prompt(100), 0, 50)
    assert of.held_tokens(Prompt(100)) == 0
    assert len(of.sent) == 0


def test_clear_drops_both() -> None:
    of = claims(exact=True)
    of.held.apply(NodeEvent(1, 1, BlocksStored(CHAIN[:4], None, b"", 16, (), Identity("m"))))
    of.served(TEXT, 0, None)
    of.clear()
    assert (of.held_tokens(BOTH), of.held_tokens(TEXT)) == (0, 0)


def test_the_block_size_of_a_pool_is_the_first_that_a_node_said() -> None:
    silent, says = claims(exact=True), claims(exact=True)
    says.block_size = 32
    assert block_size_of([NoClaims(), silent, says]) == 32
    assert block_size_of([NoClaims(), silent]) == 0
