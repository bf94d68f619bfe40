from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefix_cache import BlockCache, Identity, PoolExhausted
from prefix_cache.client import NodeEvent, SnapshotEnded, SnapshotStarted
from prefix_cache.errors import EventGap
from prefix_cache.index import BlocksRemoved, BlocksStored, Cleared
from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.index.events import Event
from router.claims.held_blocks import HeldBlocks
from router.turn import Prompt

LIFE, NEXT_LIFE = 11, 12
CHAIN = tuple(b"block %04d" % number for number in range(100))


def stored(first: int, end: int) -> BlocksStored:
    return BlocksStored(
        CHAIN[first:end], CHAIN[first - 1] if first else None, b"", 16, (), Identity("m")
    )


def removed(*numbers: int) -> BlocksRemoved:
    return BlocksRemoved(tuple(CHAIN[number] for number in numbers))


def held(*events: Event, life: int = LIFE) -> HeldBlocks:
    """What is held after events 1, 2, ... of a life."""
    claims = HeldBlocks()
    for number, event in enumerate(events, 1):
        claims.apply(NodeEvent(life, number, event))
    return claims


def prompt(blocks: int, extra_tokens: int = 1) -> Prompt:
    return Prompt(16 * blocks + extra_tokens, b"", CHAIN[:blocks], 16)


def snapshot(number: int, *blocks: BlocksStored, life: int = LIFE) -> Iterable[NodeEvent]:
    yield NodeEvent(life, number, SnapshotStarted())
    for block in blocks:
        yield NodeEvent(life, number, block)
    yield NodeEvent(life, number, SnapshotEnded())


def test_tokens_of_held_blocks_are_held() -> None:
    claims = held(stored(0, 4), stored(4, 7), removed(6))
    assert claims.held_tokens(prompt(10)) == 96
    assert claims.held_tokens(prompt(3)) == 48
    assert held().held_tokens(prompt(3)) == 0
    assert held(stored(0, 4)).held_tokens(Prompt(5, b"", (), 16)) == 0


def test_at_least_the_last_token_is_to_be_computed() -> None:
    claims = held(stored(0, 4))
    assert claims.held_tokens(prompt(4, extra_tokens=0)) == 48
    assert claims.held_tokens(prompt(4, extra_tokens=1)) == 64


@pytest.mark.parametrize("blocks", range(12))
def test_halving_finds_what_counting_would(blocks: int) -> None:
    claims = held(*([stored(0, blocks)] if blocks else []))
    assert claims.held_tokens(prompt(11)) == 16 * min(blocks, 11)


def test_cleared_and_a_new_life_drop_everything() -> None:
    assert held(stored(0, 4), Cleared()).held_tokens(prompt(4)) == 0
    claims = held(stored(0, 4))
    claims.apply(NodeEvent(NEXT_LIFE, 1, stored(0, 1)))
    assert claims.held_tokens(prompt(4)) == 16
    claims.apply(NodeEvent(LIFE, 2, stored(4, 6)))  # late
    assert claims.held_tokens(prompt(6)) == 16


def test_a_gap_is_told_and_a_duplicate_is_not() -> None:
    claims = held(stored(0, 1), stored(1, 2))
    with pytest.raises(EventGap):
        claims.apply(NodeEvent(LIFE, 4, stored(3, 4)))
    assert (claims.position.incarnation, claims.position.number) == (LIFE, 2)
    claims.apply(NodeEvent(LIFE, 2, stored(1, 2)))
    assert claims.held_tokens(prompt(9)) == 32


def test_a_block_whose_parent_is_not_held_asks_for_a_snapshot() -> None:
    claims = held(stored(0, 2))
    with pytest.raises(EventGap, match="a snapshot is needed"):
        claims.apply(NodeEvent(LIFE, 2, stored(4, 6)))
    assert claims.position.incarnation == 0
    assert claims.held_tokens(prompt(9)) == 0
    for event in snapshot(2, stored(0, 4), stored(4, 6)):
        claims.apply(event)
    assert claims.held_tokens(prompt(9)) == 96


def test_it_is_current_between_the_end_of_a_snapshot_and_a_gap() -> None:
    claims = HeldBlocks()
    seen = [claims.is_current]
    for event in snapshot(4, stored(0, 4)):
        claims.apply(event)
        seen.append(claims.is_current)
    assert seen == [False, False, False, True]
    with pytest.raises(EventGap):
        claims.apply(NodeEvent(LIFE, 6, stored(6, 7)))
    assert not claims.is_current
    claims.apply(NodeEvent(LIFE, 4, stored(3, 4)))  # seen before: it fills no gap
    assert not claims.is_current
    claims.apply(NodeEvent(LIFE, 5, stored(4, 6)))
    assert claims.is_current
    claims.clear()
    assert not claims.is_current


def test_an_event_that_comes_after_clear_claims_nothing() -> None:
    claims = held(stored(0, 4))
    claims.clear()
    with pytest.raises(EventGap):
        claims.apply(NodeEvent(LIFE, 2, stored(4, 6)))
    assert claims.held_tokens(prompt(9)) == 0
    assert len(claims) == 0


# --- the engine's word ----------------------------------------------------------------------


def test_blocks_that_were_not_delivered_are_not_claimed_again() -> None:
    claims = held(stored(0, 8))
    claims.served(prompt(8), 128, 48)
    assert claims.held_tokens(prompt(8)) == 48
    assert claims.held_tokens(prompt(2)) == 32


def test_what_branches_off_behind_them_is_not_claimed_either() -> None:
    claims = held(stored(0, 8))
    branch = tuple(b"other %d" % number for number in range(3))
    claims.apply(NodeEvent(LIFE, 2, BlocksStored(branch, CHAIN[5], b"", 16, (), Identity("m"))))
    other = Prompt(1000, b"", CHAIN[:6] + branch, 16)
    assert claims.held_tokens(other) == 144
    claims.served(prompt(8), 128, 48)
    assert claims.held_tokens(other) == 48


@pytest.mark.parametrize(
    "word", [stored(3, 4), Cleared(), SnapshotStarted()], ids=["stored", "cleared", "snapshot"]
)
def test_the_nodes_next_word_on_them_counts(word: Event | SnapshotStarted) -> None:
    claims = held(stored(0, 8))
    claims.served(prompt(8), 128, 48)
    claims.apply(NodeEvent(LIFE, 2, word))
    for event in snapshot(3, stored(0, 8)):
        claims.apply(event)
    assert claims.held_tokens(prompt(8)) == 128


def test_what_is_delivered_after_all_is_claimed_again() -> None:
    claims = held(stored(0, 8))
    claims.served(prompt(8), 128, 48)
    claims.served(prompt(8), 48, 112)
    assert claims.held_tokens(prompt(8)) == 128


@pytest.mark.parametrize(("promised", "delivered"), [(128, 128), (0, 0), (48, 64)])
def test_an_engine_that_keeps_the_promise_changes_nothing(promised: int, delivered: int) -> None:
    claims = held(stored(0, 8))
    claims.served(prompt(8), promised, delivered)
    assert claims.held_tokens(prompt(8)) == 128


def test_of_very_many_blocks_that_were_not_delivered_the_last_are_remembered() -> None:
    """So that a lookup stays fast, whatever an engine does not deliver."""
    claims = HeldBlocks()
    prompts = [Prompt(17, b"", (b"chain %d" % number,), 16) for number in range(1000)]
    for number, each in enumerate(prompts, 1):
        chain = BlocksStored(tuple(each.block_hashes), None, b"", 16, (), Identity("m"))
        claims.apply(NodeEvent(LIFE, number, chain))
    for each in prompts:
        claims.served(each, 16, 0)
    assert [claims.held_tokens(each) for each in prompts] == [16] * 744 + [0] * 256


def test_more_promised_than_there_are_blocks_is_no_error() -> None:
    claims = held(stored(0, 8))
    claims.served(prompt(8, extra_tokens=10), 138, 130)
    assert claims.held_tokens(prompt(8)) == 128


# --- against an index -----------------------------------------------------------------------

sequences = st.lists(st.integers(0, 1), min_size=1, max_size=9)


@given(st.lists(sequences, min_size=1, max_size=12), sequences)
def test_it_claims_what_the_node_would_find(history: list[list[int]], asked: list[int]) -> None:
    """Blocks of one token in a small pool that evicts: the mirror of its events is exact."""
    claims, who, number = HeldBlocks(), Identity("m"), 0

    def on_event(event: Event) -> None:
        nonlocal number
        number += 1
        claims.apply(NodeEvent(LIFE, number, event))

    cache = BlockCache(12, 1, on_event=on_event)
    for tokens in history:
        try:
            sequence = cache.acquire(who, tokens)
        except PoolExhausted:
            continue
        cache.commit(sequence, len(tokens))
        cache.release(sequence)
    hasher = BlockHasher(1, None)
    packed = b"".join(token.to_bytes(4, "little") for token in asked)
    chain = hasher.split(hasher.chain(hasher.root(who), packed, {}))
    found = cache.match(who, asked).num_cached_tokens
    assert claims.held_tokens(Prompt(len(asked), b"", chain, 1)) == found
