"""What ``stats`` counts: prompt tokens asked for and found, once each."""

from __future__ import annotations

import pytest

from prefix_cache import BlockCache, PoolExhausted

from .stories import WHO, serve


def test_a_request_refused_ten_times_is_one_query() -> None:
    """F034: the pool is full until another request ends."""
    cache = BlockCache(num_blocks=8)
    serve(cache, [1] * 32)
    other = cache.acquire(WHO, [2] * 96)
    before = cache.stats()
    for _ in range(10):
        with pytest.raises(PoolExhausted):
            cache.acquire(WHO, [1] * 65)
        with pytest.raises(PoolExhausted):
            cache.acquire(WHO, [1] * 65, resumed=True)
        cache.match(WHO, [1] * 65)
        cache.explain(WHO, [1] * 65)
    assert cache.stats() == before

    cache.release(other)
    cache.acquire(WHO, [1] * 65)
    after = cache.stats()
    assert after.query_tokens - before.query_tokens == 65
    assert after.hit_tokens - before.hit_tokens == 32


def test_work_that_is_done_again_after_a_preemption_is_neither_query_nor_hit() -> None:
    """F033: unique prompts only, in a pool that holds one of them at a time."""
    cache = BlockCache(num_blocks=4)
    for resumed in (False, True, True):
        for token in (1, 2, 3):
            preempted = cache.acquire(WHO, [token] * 64, resumed=resumed)
            cache.commit(preempted, 64)
            cache.release(preempted)
    stats = cache.stats()
    assert (stats.query_tokens, stats.hit_tokens) == (3 * 64, 0)
    assert stats.recomputed_tokens == 6 * 64
    assert stats.evicted_blocks == 8 * 4


def test_what_a_preempted_sequence_finds_again_is_no_hit_and_not_recomputed() -> None:
    cache = BlockCache(num_blocks=8)
    preempted = cache.acquire(WHO, [1] * 80)
    cache.commit(preempted, 70)
    cache.release(preempted)
    assert cache.acquire(WHO, [1] * 80, resumed=True).num_cached_tokens == 64
    stats = cache.stats()
    assert (stats.query_tokens, stats.hit_tokens, stats.recomputed_tokens) == (80, 0, 16)


def test_generated_tokens_and_forks_are_no_queries() -> None:
    cache = BlockCache(num_blocks=8)
    sequence = cache.acquire(WHO, [1] * 20)
    cache.append(sequence, [2] * 30)
    cache.fork(sequence)
    assert cache.stats().query_tokens == 20
