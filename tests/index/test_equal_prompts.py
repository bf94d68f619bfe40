"""Requests for the same prompt at the same moment."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from prefix_cache import BlockCache
from prefix_cache.index.events import BlocksRemoved, BlocksStored

from .stories import WHO, hit, table

COMMON = [5] * 160


@pytest.mark.parametrize("order", ["first in first out", "last in first out", "shuffled"])
def test_one_copy_is_kept_and_the_others_go_with_their_sequences(order: str) -> None:
    """F119: sixteen requests, ten common blocks and one of their own each."""
    events: list[object] = []
    cache = BlockCache(num_blocks=200, on_event=events.append)
    requests = [cache.acquire(WHO, [*COMMON, 100 + n]) for n in range(16)]
    assert [request.num_cached_tokens for request in requests] == [0] * 16
    for request in requests:
        cache.commit(request, 161)
        cache.audit()

    assert (cache.stats().cached, cache.stats().private) == (10, 15 * 10 + 16)
    assert [type(event) for event in events] == [BlocksStored]
    assert table(cache.match(WHO, [*COMMON, 1]).block_ids) == table(requests[0].block_table)[:10]

    if order == "last in first out":
        requests.reverse()
    elif order == "shuffled":
        random.Random(119).shuffle(requests)
    for request in requests:
        cache.release(request)
        cache.audit()
        assert hit(cache, [*COMMON, 1]) == 160

    stats = cache.stats()
    assert (stats.cached, stats.evictable, stats.private, stats.free) == (10, 10, 0, 190)


def test_a_duplicate_goes_on_under_the_cached_chain() -> None:
    """Its own continuation is findable behind the blocks of the other."""
    cache = BlockCache(num_blocks=20)
    first, second = cache.acquire(WHO, [5] * 33), cache.acquire(WHO, [5] * 33)
    cache.commit(first, 33)
    cache.append(second, [6] * 15)
    cache.commit(second, 48)

    found = cache.match(WHO, [5] * 33 + [6] * 16)

    assert found.num_cached_tokens == 48
    assert table(found.block_ids) == [*table(first.block_table)[:2], table(second.block_table)[2]]


def test_the_cached_copy_is_held_for_those_who_go_on_under_it() -> None:
    """The second sequence keeps its own blocks in its table and pins the first one's."""
    events: list[object] = []
    cache = BlockCache(num_blocks=4, on_event=events.append)
    first, second = cache.acquire(WHO, [5] * 32), cache.acquire(WHO, [5] * 32)
    cache.commit(first, 32)
    cache.commit(second, 32)
    cache.release(first)

    assert cache.stats().evictable == 0
    cache.release(second)
    assert (cache.stats().evictable, cache.stats().free) == (2, 2)
    cache.acquire(WHO, [6] * 64)
    removed = [event for event in events if isinstance(event, BlocksRemoved)]
    stored = [event for event in events if isinstance(event, BlocksStored)]
    assert removed == [BlocksRemoved(stored[0].block_hashes[::-1])]


def test_requests_that_commit_in_turns_share_one_chain() -> None:
    """Each block is the copy of whoever came first, and no block is cached twice."""
    events: list[Any] = []
    cache = BlockCache(num_blocks=20, on_event=events.append)
    one, other = cache.acquire(WHO, [5] * 64), cache.acquire(WHO, [5] * 64)
    for sequence, num_tokens in ((one, 16), (other, 32), (one, 48), (other, 64)):
        cache.commit(sequence, num_tokens)

    mine, its = table(one.block_table), table(other.block_table)
    assert table(cache.match(WHO, [5] * 65).block_ids) == [mine[0], its[1], mine[2], its[3]]
    assert (cache.stats().cached, cache.stats().private) == (4, 4)
    assert [len(event.block_hashes) for event in events] == [1, 1, 1, 1]
    for before, after in pairwise(events):
        assert after.parent_block_hash == before.block_hashes[-1]
