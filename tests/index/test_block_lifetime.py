"""A block is found only while it holds, completely, what its hash says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event, Lock

import pytest

from prefix_cache import BlockCache, Sequence

from .stories import WHO, hit, serve, table
from .worker import Worker


def test_a_reused_block_is_no_longer_found_under_its_old_content() -> None:
    """F064."""
    cache = BlockCache(num_blocks=5)
    serve(cache, [1] * 65)
    serve(cache, [2] * 80)

    assert hit(cache, [1] * 65) == 0
    assert hit(cache, [2] * 80) == 64


def test_blocks_are_found_only_once_they_are_written() -> None:
    """F065: planned is not written, and a cancelled sequence leaves nothing."""
    cache = BlockCache(num_blocks=8)
    planned = cache.acquire(WHO, [1] * 65)
    assert hit(cache, [1] * 65) == 0
    cache.release(planned)
    assert hit(cache, [1] * 65) == 0


@pytest.mark.parametrize(("committed", "found"), [(15, 0), (16, 16), (32, 32), (47, 32), (65, 64)])
def test_of_a_half_committed_sequence_that_half_is_found(committed: int, found: int) -> None:
    """F065."""
    cache = BlockCache(num_blocks=8)
    sequence = cache.acquire(WHO, [1] * 65)
    cache.commit(sequence, committed)
    assert hit(cache, [1] * 65) == found
    cache.release(sequence)
    assert hit(cache, [1] * 65) == found


def test_what_match_saw_may_go_but_what_acquire_got_is_held() -> None:
    """F066: match and pin are one step of acquire, and acquire looks again."""
    cache = BlockCache(num_blocks=5)
    prompt = [1] * 65
    serve(cache, prompt)
    seen = cache.match(WHO, prompt)
    assert seen.num_cached_tokens == 64
    serve(cache, [2] * 80)

    late = cache.acquire(WHO, prompt)

    assert late.num_cached_tokens == 0


def test_a_thread_that_holds_a_prompt_never_sees_another_threads_tokens() -> None:
    """F066: with a lock around each call, as the contract wants it."""
    cache, lock = BlockCache(num_blocks=9, block_size=4), Lock()
    worker, done = Worker(9, 4), Event()
    prompt = list(range(17))

    def opened(tokens: list[int]) -> Sequence:
        with lock:
            sequence = cache.acquire(WHO, tokens)
        kv, cached = worker.kv(WHO, tokens), sequence.num_cached_tokens
        assert worker.read(sequence.block_table, cached) == kv[:cached]
        worker.write(sequence.block_table, kv, cached)
        with lock:
            cache.commit(sequence, len(tokens))
        return sequence

    def closed(sequence: Sequence) -> None:
        with lock:
            cache.release(sequence)

    def read_the_prompt() -> None:
        for _ in range(150):
            holder = opened(prompt)
            again = opened(prompt)
            assert again.num_cached_tokens == 16
            closed(holder)
            closed(again)

    def churn_the_pool() -> None:
        others = count(1000)
        while not done.is_set():
            closed(opened([next(others)] * 9))

    with ThreadPoolExecutor() as threads:
        churning = threads.submit(churn_the_pool)
        try:
            threads.submit(read_the_prompt).result()
        finally:
            done.set()
        churning.result()
    cache.audit()


@pytest.mark.parametrize("parent_first", [True, False])
@pytest.mark.parametrize("lockstep", [True, False])
def test_forks_with_a_shared_tail_do_not_write_over_each_other(
    parent_first: bool, lockstep: bool
) -> None:
    """F068: fork at 20 tokens, then different tokens in each."""
    cache, worker = BlockCache(num_blocks=8), Worker(8, 16)
    prompt = list(range(20))
    parent = cache.acquire(WHO, prompt)
    worker.write(parent.block_table, worker.kv(WHO, prompt), 0)
    cache.commit(parent, 20)
    child = cache.fork(parent)

    told = {parent: list(prompt), child: list(prompt)}
    order = [parent, child] if parent_first else [child, parent]
    steps = order * 6 if lockstep else [order[0]] * 6 + [order[1]] * 6
    copies: list[tuple[int, int]] = []
    for step, sequence in enumerate(steps):
        told[sequence].append(100 + step)
        appended = cache.append(sequence, [100 + step])
        worker.copy(appended.copies)
        copies += appended.copies
        kv = worker.kv(WHO, told[sequence])
        worker.write(sequence.block_table, kv, sequence.num_committed_tokens)
        cache.commit(sequence, len(kv))

    assert copies == [(1, 2)]  # the first writer takes a copy, the other keeps the block
    assert table(order[0].block_table) == [0, 2]
    assert table(order[1].block_table) == [0, 1]
    for sequence, tokens in told.items():
        assert worker.read(sequence.block_table, 26) == worker.kv(WHO, tokens)


def test_a_copy_outlives_the_block_it_was_made_from() -> None:
    """F069: fork, write, evict the original, read the copy."""
    cache, worker = BlockCache(num_blocks=3), Worker(3, 16)
    prompt = list(range(20))
    original = cache.acquire(WHO, prompt)
    worker.write(original.block_table, worker.kv(WHO, prompt), 0)
    cache.commit(original, 20)
    copy = cache.fork(original)
    appended = cache.append(copy, [7])
    worker.copy(appended.copies)
    kv = worker.kv(WHO, [*prompt, 7])
    worker.write(copy.block_table, kv, 20)
    cache.commit(copy, 21)

    cache.release(original)
    intruder = cache.acquire(WHO, [9] * 16)
    assert table(intruder.block_table) == [1]  # the original's tail
    worker.write(intruder.block_table, worker.kv(WHO, [9] * 16), 0)

    assert worker.read(copy.block_table, 21) == kv
