"""What was evicted is remembered up to a number of trims, and no further."""

from __future__ import annotations

import gc

from prefix_cache import BlockCache
from prefix_cache.index import ReasonKind
from prefix_cache.index.cache import MAX_ENDS
from prefix_cache.index.eviction_memory import EvictionMemory, Trim
from prefix_cache.index.run import Run

from .stories import WHO, packed


def test_the_oldest_trims_are_forgotten_first() -> None:
    """F112."""
    memory = EvictionMemory(capacity=2)
    for release, block in enumerate([b"a", b"b", b"c"]):
        memory.remember(block, Trim(block, 1, release))
    assert memory.longest([b"a"]) is None
    assert memory.longest([b"b"]) == (1, 1)
    assert memory.longest([b"c"]) == (1, 2)


def test_a_trim_remembered_again_is_the_latest() -> None:
    memory = EvictionMemory(capacity=2)
    for release, block in enumerate([b"a", b"b", b"a", b"c"]):
        memory.remember(block, Trim(block, 1, release))
    assert memory.longest([b"a"]) == (1, 2)
    assert memory.longest([b"b"]) is None


def test_trims_that_follow_each_other_are_one_stretch_as_old_as_its_first() -> None:
    memory = EvictionMemory(capacity=9)
    memory.remember(b"c", Trim(b"d", 2, release=5))
    memory.remember(b"a", Trim(b"b", 2, release=7))
    assert memory.longest([b"a", b"b", b"c", b"d", b"e"]) == (4, 7)
    assert memory.longest([b"a", b"b", b"c"]) == (3, 7)
    assert memory.longest([b"e", b"a"]) is None
    assert memory.longest([]) is None


def test_a_burst_of_one_turn_sessions_leaves_no_more_than_the_bound() -> None:
    """F112: runs that are gone are kept by remembered ends only, and those are bounded."""
    cache = BlockCache(num_blocks=8, block_size=1)
    for session in range(MAX_ENDS + 4_000):
        sequence = cache.acquire(WHO, packed([session] * 3))
        cache.commit(sequence, 3)
        cache.release(sequence)
    gc.collect()
    runs = sum(isinstance(thing, Run) for thing in gc.get_objects())
    assert runs <= MAX_ENDS + 10
    assert cache.explain(WHO, [MAX_ENDS] * 3).reasons[0].kind is ReasonKind.EVICTED
    assert cache.explain(WHO, [1] * 3).reasons[0].kind is ReasonKind.NEVER_SEEN
