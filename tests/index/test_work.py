"""How much work a call does, counted in hashes and lines of Python, never in time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from prefix_cache import BlockCache
from prefix_cache.index.block_hash import native_hash
from prefix_cache.index.run import Run

from .stories import WHO, packed, serve


class Hashes:
    """A hash function that keeps the length of each block it was given."""

    def __init__(self) -> None:
        self.blocks: list[int] = []

    def __call__(self, parent: bytes, block: bytes, extra: bytes) -> bytes:
        self.blocks.append(len(block))
        return native_hash(parent, block, extra)

    def during(self, call: Callable[[], object]) -> int:
        """How many blocks are hashed by a call."""
        before = len(self.blocks)
        call()
        return len(self.blocks) - before


def lines(call: Callable[[], object]) -> int:
    """How many lines of Python a call runs."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    outer = sys.gettrace()
    gc.disable()  # others may have hooked Python code into it
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(outer)
        gc.enable()
    return count


def full_pool(num_blocks: int, host_blocks: int = 0) -> BlockCache:
    """Conversations of 100 blocks, all evictable, the pool without a free block."""
    cache = BlockCache(num_blocks=num_blocks, host_blocks=host_blocks)
    for conversation in range(num_blocks // 100):
        serve(cache, [conversation] * 1600)
    assert cache.stats().evictable == num_blocks
    return cache


def test_evicting_a_thousand_blocks_costs_the_same_in_a_pool_fifty_times_as_large() -> None:
    """F077."""
    small, large = full_pool(2_000), full_pool(100_000)
    prompt = packed([2**31]) * 16_000
    work = [lines(lambda cache=cache: cache.acquire(WHO, prompt)) for cache in (small, large)]  # type: ignore[misc]
    assert work[0] == work[1] < 1_000
    assert small.stats().evicted_blocks == large.stats().evicted_blocks == 1_000


def test_each_block_of_a_long_prompt_is_hashed_once_and_whole() -> None:
    """F079: 50,000 tokens, 64 bytes at a time."""
    hashes = Hashes()
    cache = BlockCache(num_blocks=4_000, hash_function=hashes)
    sequence = cache.acquire(WHO, list(range(50_000)))
    assert hashes.during(lambda: cache.commit(sequence, 50_000)) == 3_125
    assert set(hashes.blocks[-3_125:]) == {64}
    cache.release(sequence)


@pytest.mark.parametrize("num_tokens", [1_600, 50_000])
def test_a_prompt_that_is_cached_is_found_by_one_hash_however_long(num_tokens: int) -> None:
    """F079."""
    hashes = Hashes()
    cache = BlockCache(num_blocks=8_000, hash_function=hashes)
    serve(cache, list(range(num_tokens)))
    prompt = packed(range(num_tokens))
    assert hashes.during(lambda: cache.match(WHO, prompt)) == 1
    assert lines(lambda: cache.match(WHO, prompt)) < 100


def test_a_late_turn_of_a_conversation_does_the_work_of_an_early_one() -> None:
    """Each turn adds 160 tokens; in delta form nothing before them is hashed or looked at."""
    hashes = Hashes()
    cache = BlockCache(num_blocks=4_000, hash_function=hashes)
    work, hashed = [], []
    after = None
    for number in range(100):
        new = packed([number]) * 160

        def turn(new: bytes = new) -> None:
            nonlocal after
            sequence = cache.acquire(WHO, new, after=after)
            cache.commit(sequence, sequence.num_tokens)
            after = sequence.findable_prefix
            cache.release(sequence)

        hashed.append(hashes.during(lambda turn=turn: work.append(lines(turn))))  # type: ignore[misc]
    assert hashed[1:] == [10] * 99
    assert work[1] == work[99]


def test_moving_a_thousand_blocks_costs_the_same_in_pools_fifty_times_as_large() -> None:
    """F077, on both tiers: as many leave the GPU for the host, and the host for good."""
    prompt = packed([2**31]) * 16_000
    work = []
    for num_blocks in (2_000, 100_000):
        cache = full_pool(num_blocks, host_blocks=num_blocks)
        for conversation in range(num_blocks // 100):
            sequence = cache.acquire(WHO, [2**30 + conversation] * 1600)
            cache.acknowledge(sequence.copies.copy_id)
            cache.commit(sequence, 1600)
            cache.release(sequence)
        assert cache.stats().host_free == 0
        work.append(lines(lambda cache=cache: cache.acquire(WHO, prompt)))  # type: ignore[misc]
        assert cache.stats().offloaded_blocks == num_blocks + 1_000
    assert work[0] == work[1] < 10_000


def test_blocks_that_go_to_the_host_one_by_one_are_copied_a_few_times_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A decode takes a long conversation's blocks; each time all on the host could be copied."""
    copied = 0
    put_front = Run.put_front

    def counting(run: Run, front: Run) -> None:
        nonlocal copied
        copied += len(run.blocks)
        put_front(run, front)

    hashes = Hashes()
    cache = BlockCache(num_blocks=1_001, host_blocks=1_000, hash_function=hashes)
    prompt = packed([7]) * 16_016
    serve(cache, [7] * 16_000)
    sequence = cache.acquire(WHO, [8] * 16)
    monkeypatch.setattr(Run, "put_front", counting)
    for _ in range(1_000):
        cache.acknowledge(cache.append(sequence, [8] * 16).copy_id)
    assert copied < 10 * 1_000
    assert hashes.during(lambda: cache.match(WHO, prompt)) < 10
    assert cache.match(WHO, prompt).num_host_tokens == 16_000
