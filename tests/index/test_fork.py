"""Forks share everything until one of them writes."""

from __future__ import annotations

from typing import Any

from prefix_cache import BlockCache

from .stories import WHO, hit, table


def test_a_fork_takes_no_block_and_counts_no_query() -> None:
    cache = BlockCache(num_blocks=8)
    parent = cache.acquire(WHO, [1] * 20)
    before = cache.stats()

    child = cache.fork(parent)

    after = cache.stats()
    assert (after.private, after.query_tokens, after.live_sequences) == (2, 20, 2)
    assert before.private == 2
    assert table(child.block_table) == table(parent.block_table)
    assert (child.num_tokens, child.num_cached_tokens, child.num_committed_tokens) == (20, 0, 0)
    assert child.id != parent.id


def test_the_copy_is_taken_before_the_blocks_that_follow_it() -> None:
    cache = BlockCache(num_blocks=8)
    child = cache.fork(cache.acquire(WHO, [1] * 20))

    appended = cache.append(child, [2] * 40)

    assert appended.copies == ((1, 2),)
    assert appended.new_block_ids == (3, 4)
    assert table(child.block_table) == [0, 2, 3, 4]


def test_a_full_last_block_is_shared_without_a_copy() -> None:
    cache = BlockCache(num_blocks=8)
    parent = cache.acquire(WHO, [1] * 32)
    child = cache.fork(parent)

    assert cache.append(child, [2]).copies == ()
    assert cache.append(parent, [3]).copies == ()
    assert table(child.block_table) == [0, 1, 2]
    assert table(parent.block_table) == [0, 1, 3]


def test_of_three_owners_the_last_writes_in_place() -> None:
    cache = BlockCache(num_blocks=8)
    first = cache.acquire(WHO, [1] * 4)
    second, third = cache.fork(first), cache.fork(first)

    copies = [cache.append(sequence, [2]).copies for sequence in (second, first, third)]

    assert copies == [((0, 1),), ((0, 2),), ()]


def test_forks_that_share_uncommitted_blocks_are_committed_together() -> None:
    cache = BlockCache(num_blocks=8)
    parent = cache.acquire(WHO, [1] * 40)
    child = cache.fork(parent)

    cache.commit(child, 40)

    assert child.num_committed_tokens == 40
    assert (
        parent.num_committed_tokens == 32
    )  # the partial block is not findable, so not shared news
    assert cache.stats().cached == 2
    cache.release(child)
    assert cache.stats().evictable == 0
    assert hit(cache, [1] * 40) == 32


def test_forks_are_committed_as_far_as_they_share_and_then_go_their_ways() -> None:
    events: list[Any] = []
    cache = BlockCache(num_blocks=8, on_event=events.append)
    parent = cache.acquire(WHO, [1] * 32)
    child = cache.fork(parent)
    cache.append(parent, [2] * 16)
    cache.append(child, [3] * 16)

    cache.commit(parent, 48)
    assert child.num_committed_tokens == 32
    cache.commit(child, 48)

    assert [len(event.block_hashes) for event in events] == [3, 1]
    assert events[1].parent_block_hash == events[0].block_hashes[1]
    assert hit(cache, [1] * 32 + [2] * 17) == 48
    assert hit(cache, [1] * 32 + [3] * 17) == 48


def test_forks_of_a_duplicate_share_it_until_the_last_is_gone() -> None:
    cache = BlockCache(num_blocks=8)
    cached, second = cache.acquire(WHO, [1] * 32), cache.acquire(WHO, [1] * 32)
    third = cache.fork(second)
    cache.commit(cached, 32)
    cache.commit(second, 32)
    assert third.num_committed_tokens == 32

    for sequence, private in ((second, 2), (cached, 2), (third, 0)):
        cache.release(sequence)
        assert cache.stats().private == private
    assert cache.stats().cached == 2
