"""Every block comes back, whatever became of the sequence that took it."""

from __future__ import annotations

import random

import pytest

from prefix_cache import BlockCache, PoolExhausted, Sequence
from prefix_cache.errors import ReleasedSequence

from .records import ExtraKey
from .stories import WHO, hit, serve, table


def test_a_cancelled_sequence_gives_its_blocks_back_though_its_work_ends_late() -> None:
    """F042: the commit that comes after the cancellation publishes nothing."""
    cache = BlockCache(num_blocks=8)
    cancelled = cache.acquire(WHO, [1] * 65)
    cache.release(cancelled)
    assert cache.stats().free == 8

    with pytest.raises(ReleasedSequence):
        cache.commit(cancelled, 65)
    assert cache.stats().free == 8
    assert hit(cache, [1] * 65) == 0


def test_a_sequence_cancelled_half_written_leaves_only_what_was_committed() -> None:
    """F042: the rest never comes."""
    cache = BlockCache(num_blocks=8)
    cancelled = cache.acquire(WHO, [1] * 65)
    cache.commit(cancelled, 32)
    cache.release(cancelled)

    stats = cache.stats()
    assert (stats.free, stats.cached, stats.evictable, stats.private) == (6, 2, 2, 0)


@pytest.mark.parametrize("extra_keys", [[], [(0, None, None)]], ids=["cached", "never cached"])
def test_two_thousand_requests_leave_no_block_behind(extra_keys: list[ExtraKey]) -> None:
    """F043: with reuse on and off."""
    cache = BlockCache(num_blocks=40)
    chance = random.Random(43)
    running = []
    for _ in range(2000):
        prompt = [chance.randrange(2)] * chance.randint(1, 50)
        prompt += [chance.randrange(10)] * chance.randint(0, 50)
        running.append(cache.acquire(WHO, prompt, extra_keys))
        cache.commit(running[-1], chance.randint(0, len(prompt)))
        if len(running) == 5:
            cache.release(running.pop(chance.randrange(5)))
    for sequence in running:
        cache.release(sequence)

    stats = cache.stats()
    assert stats.private == 0
    assert stats.live_sequences == 0
    assert stats.cached == stats.evictable == 40 - stats.free
    assert bool(stats.cached) == (extra_keys == [])
    cache.reset()
    assert len(cache.acquire(WHO, [1] * 640).block_table) == 40


def test_two_thousand_requests_leave_no_block_and_no_slot_behind() -> None:
    """F042, F072: requests are cancelled while they load; copies end late, some never."""
    cache = BlockCache(num_blocks=40, host_blocks=25)
    chance = random.Random(42)
    running: list[Sequence] = []
    pending: list[int] = []
    for _ in range(2000):
        prompt = [chance.randrange(15)] * chance.randint(1, 110)
        sequence = cache.acquire(WHO, [*prompt, 7])
        running.append(sequence)
        if sequence.copies.copy_id:
            pending.append(sequence.copies.copy_id)
        while len(pending) > 2 or (pending and chance.random() < 0.6):
            end = cache.acknowledge if chance.random() < 0.8 else cache.withdraw
            end(pending.pop(chance.randrange(len(pending))))
        if not sequence.copies.loads or sequence.copies.copy_id not in pending:
            cache.commit(sequence, chance.randint(0, len(prompt)))
        if len(running) == 3:
            cache.release(running.pop(chance.randrange(3)))
    for sequence in running:
        cache.release(sequence)
    for copy_id in pending:
        cache.withdraw(copy_id)
    cache.audit()

    stats = cache.stats()
    assert stats.loaded_tokens > 10_000
    assert stats.offloaded_blocks > 500
    assert (stats.private, stats.live_sequences, stats.pending_copies) == (0, 0, 0)
    assert stats.cached == stats.evictable == 40 - stats.free
    assert stats.host_cached == 25 - stats.host_free


def test_a_failed_acquire_lets_go_of_what_it_had_matched() -> None:
    """F045: ten blocks match, the eleventh cannot be had."""
    cache = BlockCache(num_blocks=12)
    serve(cache, [1] * 160)
    other = cache.acquire(WHO, [2] * 32)
    before = cache.stats()
    assert (before.free, before.evictable) == (0, 10)

    with pytest.raises(PoolExhausted) as refused:
        cache.acquire(WHO, [1] * 161)

    assert refused.value.details == {"needed": 1, "available": 0}
    assert cache.stats() == before
    cache.release(other)
    assert len(cache.acquire(WHO, [3] * 192).block_table) == 12  # nothing is held back


def test_blocks_in_use_are_never_evicted() -> None:
    """F045."""
    cache = BlockCache(num_blocks=12)
    serve(cache, [1] * 160)
    holder = cache.acquire(WHO, [1] * 161)

    with pytest.raises(PoolExhausted) as refused:
        cache.acquire(WHO, [2] * 32)

    assert refused.value.details == {"needed": 2, "available": 1}
    assert hit(cache, [1] * 161) == 160
    assert table(cache.match(WHO, [1] * 161).block_ids) == table(holder.block_table)[:10]


@pytest.mark.parametrize(("num_tokens", "blocks"), [(16, 1), (32, 2)])
def test_a_prompt_of_whole_blocks_takes_exactly_these(num_tokens: int, blocks: int) -> None:
    """F048: its last block is full, so the next token opens another."""
    cache = BlockCache(num_blocks=4)
    sequence = cache.acquire(WHO, [1] * num_tokens)
    assert len(sequence.block_table) == blocks
    assert cache.stats().private == blocks

    appended = cache.append(sequence, [1])
    assert appended.new_block_ids == (blocks,)
    assert len(sequence.block_table) == blocks + 1

    cache.release(sequence)
    assert cache.stats().free == 4


def test_blocks_shared_by_forks_come_back_with_the_last_of_them() -> None:
    cache = BlockCache(num_blocks=4)
    parent = cache.acquire(WHO, [1] * 20)
    child = cache.fork(parent)
    grandchild = cache.fork(child)

    cache.release(parent)
    cache.release(grandchild)
    assert cache.stats().private == 2
    cache.release(child)
    assert cache.stats().free == 4


def test_blocks_that_forks_shared_before_commit_have_one_owner_when_used_again() -> None:
    cache = BlockCache(num_blocks=4)
    parent = cache.acquire(WHO, [1] * 64)
    child = cache.fork(parent)
    cache.commit(child, 64)
    cache.release(parent)
    cache.release(child)

    again = cache.acquire(WHO, [2] * 60)  # evicts them
    assert cache.append(again, [2]).copies == ()
    cache.release(again)
    assert cache.stats().free == 4


def test_free_blocks_are_given_out_again_in_table_order() -> None:
    cache = BlockCache(num_blocks=6)
    first = cache.acquire(WHO, [1] * 48)
    assert table(first.block_table) == [0, 1, 2]
    cache.release(first)

    assert table(cache.acquire(WHO, [2] * 80).block_table) == [0, 1, 2, 3, 4]
