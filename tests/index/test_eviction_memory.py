"""What was evicted is remembered up to a number of blocks, and no further."""

from __future__ import annotations

import gc

from prefix_cache import BlockCache
from prefix_cache.index import ReasonKind
from prefix_cache.index.cache import MAX_ENDS
from prefix_cache.index.eviction_memory import EvictionMemory
from prefix_cache.index.run import Run

from .stories import WHO, packed


def test_the_oldest_blocks_are_forgotten_first() -> None:
    """F112."""
    memory = EvictionMemory(capacity=2, hash_size=1)
    for release, block in enumerate([b"a", b"b", b"c"]):
        memory.remember(block, release)
    assert memory.releases_by_hash() == {b"b": 1, b"c": 2}


def test_blocks_that_went_together_are_forgotten_together() -> None:
    memory = EvictionMemory(capacity=4, hash_size=2)
    memory.remember(b"a1a2a3", 1)
    memory.remember(b"b1", 2)
    assert memory.releases_by_hash() == {b"a1": 1, b"a2": 1, b"a3": 1, b"b1": 2}
    memory.remember(b"c1", 3)
    assert memory.releases_by_hash() == {b"b1": 2, b"c1": 3}


def test_a_block_evicted_again_went_lately() -> None:
    memory = EvictionMemory(capacity=9, hash_size=1)
    for release, block in enumerate([b"a", b"b", b"a"]):
        memory.remember(block, release)
    assert memory.releases_by_hash() == {b"a": 2, b"b": 1}


def test_a_burst_of_one_turn_sessions_leaves_no_more_than_the_bound() -> None:
    """F112: runs that are gone are kept by remembered ends only, and those are bounded."""
    cache = BlockCache(num_blocks=8, block_size=1)
    for session in range(MAX_ENDS + 4_000):
        sequence = cache.acquire(WHO, packed([session] * 3))
        cache.commit(sequence, 3)
        cache.release(sequence)
    gc.collect()
    runs = sum(issubclass(type(thing), Run) for thing in gc.get_objects())
    assert runs <= MAX_ENDS + 10
    assert cache.explain(WHO, [MAX_ENDS] * 3).reasons[0].kind is ReasonKind.EVICTED
    assert cache.explain(WHO, [1] * 3).reasons[0].kind is ReasonKind.NEVER_SEEN
