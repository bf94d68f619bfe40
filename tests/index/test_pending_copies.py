"""Copies between GPU and host end late, or never; until then nobody counts on them."""

from __future__ import annotations

import pytest

from prefix_cache import BlockCache, PoolExhausted
from prefix_cache.errors import CopyPending, UnknownCopy

from .stories import HISTORY, WHO, audited, hit, serve, swapped_out, table


def test_what_is_being_written_to_the_host_is_not_found_until_it_is_acknowledged() -> None:
    """F065."""
    cache = BlockCache(num_blocks=3, host_blocks=8)
    serve(cache, HISTORY)
    other = audited(cache, [2] * 48)
    assert hit(cache, [*HISTORY, 7]) == 0

    cache.acknowledge(other.copies.copy_id)
    assert hit(cache, [*HISTORY, 7]) == 48


def test_what_was_not_written_to_the_host_is_withdrawn_with_all_that_follows_it() -> None:
    """F065: the tail is there, but a block before it is not."""
    cache = BlockCache(num_blocks=4, host_blocks=8)
    serve(cache, HISTORY)
    tail = audited(cache, [2] * 32)
    cache.acknowledge(tail.copies.copy_id)
    middle = cache.append(tail, [2])
    assert middle.offloads == ((1, 1),)

    cache.withdraw(middle.copy_id)
    cache.audit()
    assert hit(cache, [*HISTORY, 7]) == 16
    assert cache.stats().host_free == 8


def test_a_request_cancelled_while_it_loads_holds_its_blocks_until_the_copy_ends() -> None:
    """F042: the load still writes them, and still reads the host."""
    cache = BlockCache(num_blocks=4, host_blocks=3)
    swapped_out(cache)
    cancelled = audited(cache, [*HISTORY, 7])
    cache.release(cancelled)
    cache.audit()
    stats = cache.stats()
    assert (stats.free, stats.private, stats.live_sequences) == (1, 3, 0)

    with pytest.raises(PoolExhausted):
        cache.acquire(WHO, [2] * 64)
    cache.acknowledge(cancelled.copies.copy_id)
    cache.audit()
    assert cache.stats().free == 4
    assert hit(cache, [*HISTORY, 7]) == 48


def test_a_load_that_never_ends_is_withdrawn_and_nothing_stays_behind() -> None:
    """F042: the message that it ended was lost."""
    cache = BlockCache(num_blocks=4, host_blocks=3)
    swapped_out(cache)
    cancelled = audited(cache, [*HISTORY, 7])
    cache.release(cancelled)
    cache.withdraw(cancelled.copies.copy_id)
    cache.audit()

    stats = cache.stats()
    assert (stats.free, stats.host_cached, stats.pending_copies) == (4, 3, 0)
    with pytest.raises(UnknownCopy):
        cache.acknowledge(cancelled.copies.copy_id)


def test_blocks_being_loaded_are_not_committed() -> None:
    """F065."""
    cache = BlockCache(num_blocks=4, host_blocks=3)
    swapped_out(cache)
    loading = audited(cache, [*HISTORY, 7])
    with pytest.raises(CopyPending) as refused:
        cache.commit(loading, 17)
    assert refused.value.details == {"num_tokens": 17, "copy_id": loading.copies.copy_id}
    cache.commit(loading, 0)

    cache.acknowledge(loading.copies.copy_id)
    cache.commit(loading, 49)
    assert loading.num_committed_tokens == 49


def test_a_sequence_whose_load_was_withdrawn_computes_and_commits() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=3)
    swapped_out(cache)
    sequence = audited(cache, [*HISTORY, 7])
    cache.withdraw(sequence.copies.copy_id)
    cache.commit(sequence, 48)
    cache.audit()
    assert table(cache.match(WHO, [*HISTORY, 7]).block_ids) == table(sequence.block_table)[:3]


def test_two_requests_load_the_same_and_the_second_keeps_its_copy_to_itself() -> None:
    cache = BlockCache(num_blocks=8, host_blocks=8)
    swapped_out(cache)
    first, second = (audited(cache, [*HISTORY, last]) for last in (7, 8))
    assert [slot for slot, _ in first.copies.loads] == [slot for slot, _ in second.copies.loads]

    cache.acknowledge(first.copies.copy_id)
    cache.commit(first, 48)
    cache.audit()
    assert cache.stats().host_free == 5  # the second still reads the slots

    cache.acknowledge(second.copies.copy_id)
    cache.commit(second, 48)
    cache.audit()
    stats = cache.stats()
    assert (stats.host_free, stats.cached, stats.private) == (8, 3, 5)
    assert table(second.block_table)[:3] == [block for _, block in second.copies.loads]


def test_forks_of_a_loading_sequence_wait_with_it_and_advance_with_it() -> None:
    cache = BlockCache(num_blocks=6, host_blocks=8)
    swapped_out(cache)
    parent = audited(cache, [*HISTORY, 7])
    child = cache.fork(parent)
    with pytest.raises(CopyPending):
        cache.commit(child, 48)
    cache.release(parent)

    cache.acknowledge(parent.copies.copy_id)
    cache.audit()
    cache.commit(child, 48)
    cache.release(child)
    cache.audit()
    stats = cache.stats()
    assert (stats.cached, stats.private, stats.host_free) == (3, 0, 8)


def test_a_block_swapped_out_before_its_offload_ended_is_replaced_by_one_computed_again() -> None:
    """The slot is free when the copy that still writes it has ended."""
    cache = BlockCache(num_blocks=3, host_blocks=3)
    serve(cache, HISTORY)
    other = audited(cache, [2] * 48)
    cache.release(other)
    again = audited(cache, HISTORY)
    cache.commit(again, 48)
    cache.audit()
    assert cache.stats().host_free == 0

    cache.acknowledge(other.copies.copy_id)
    cache.audit()
    assert cache.stats().host_free == 3


def test_a_copy_ends_once() -> None:
    cache = BlockCache(num_blocks=3, host_blocks=3)
    serve(cache, HISTORY)
    copy_id = cache.acquire(WHO, [2] * 48).copies.copy_id
    cache.acknowledge(copy_id)
    before = cache.stats()
    for end in (cache.acknowledge, cache.withdraw):
        for number in (copy_id, copy_id + 1, 0):
            with pytest.raises(UnknownCopy) as refused:
                end(number)
            assert refused.value.details == {"copy_id": number}
    assert cache.stats() == before
