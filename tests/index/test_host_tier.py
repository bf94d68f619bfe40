"""What is evicted from the GPU lives on in host memory, and comes back."""

from __future__ import annotations

import pytest

from prefix_cache import BlockCache, PoolExhausted
from prefix_cache.errors import UnknownCopy
from prefix_cache.index import NO_COPIES, Copies, Stats

from .stories import HISTORY, WHO, audited, hit, push_out, serve, swapped_out, table


def test_an_evicted_prefix_is_copied_to_the_host_and_loaded_when_it_is_wanted_again() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=8)
    assert serve(cache, HISTORY) == [0, 1, 2]

    other = audited(cache, [2] * 64)
    assert table(other.block_table) == [3, 2, 1, 0]
    assert other.copies == Copies(1, offloads=((2, 0), (1, 1), (0, 2)), loads=())
    cache.acknowledge(1)
    cache.release(other)

    again = audited(cache, [*HISTORY, 7])
    assert again.copies == Copies(2, offloads=(), loads=((2, 3), (1, 2), (0, 1)))
    assert table(again.block_table) == [3, 2, 1, 0]
    assert again.num_cached_tokens == again.num_loaded_tokens == 48
    assert again.num_committed_tokens == 0

    cache.acknowledge(2)
    cache.commit(again, 48)
    assert cache.stats().host_free == 8  # the committed blocks have taken the place of the copies
    assert table(cache.match(WHO, [*HISTORY, 7]).block_ids) == [3, 2, 1]


def test_the_end_of_a_prefix_goes_to_the_host_first_and_its_head_stays() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=8)
    serve(cache, HISTORY)
    other = audited(cache, [2] * 32)
    assert other.copies.offloads == ((2, 0),)
    cache.acknowledge(other.copies.copy_id)

    found = cache.match(WHO, [*HISTORY, 7])
    assert found.num_cached_tokens == 48
    assert found.num_host_tokens == 16
    assert table(found.block_ids) == [0, 1]


def test_who_does_not_want_a_load_computes_and_its_blocks_replace_the_copies() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=8)
    swapped_out(cache)
    fresh = cache.acquire(WHO, [*HISTORY, 7], load=False)
    assert (fresh.num_cached_tokens, fresh.copies) == (0, NO_COPIES)

    cache.commit(fresh, 48)
    cache.audit()
    stats = cache.stats()
    assert (stats.cached, stats.host_cached, stats.host_free) == (3, 0, 8)


def test_a_host_smaller_than_the_gpu_keeps_the_latest_and_never_fills_up() -> None:
    """F072: a block lies on one tier, so there are no mirrors to hold slots."""
    cache = BlockCache(num_blocks=8, host_blocks=2)
    for number in range(20):
        sequence = cache.acquire(WHO, [number] * 64)
        if sequence.copies.copy_id:
            cache.acknowledge(sequence.copies.copy_id)
        cache.commit(sequence, 64)
        cache.release(sequence)
        cache.audit()
    stats = cache.stats()
    assert (stats.cached, stats.host_cached, stats.host_free) == (8, 2, 0)
    assert (stats.evicted_blocks, stats.rejected_offloads) == (72, 0)
    assert hit(cache, [17] * 64) == 32  # its head: the tail was offloaded first, and dropped for it


def test_a_slot_given_in_a_call_is_taken_again_in_that_call_and_copied_to_once() -> None:
    """Four blocks go and one slot is there: only the last to go is kept."""
    cache = BlockCache(num_blocks=4, host_blocks=1)
    serve(cache, [1] * 64)
    other = audited(cache, [2] * 64)
    assert other.copies.offloads == ((0, 0),)
    stats = cache.stats()
    assert (stats.evicted_blocks, stats.offloaded_blocks, stats.rejected_offloads) == (4, 1, 0)
    cache.acknowledge(other.copies.copy_id)
    assert hit(cache, [1] * 64) == 16


def test_an_offload_is_rejected_and_counted_where_pending_copies_hold_every_slot() -> None:
    """F072."""
    cache = BlockCache(num_blocks=4, host_blocks=2)
    serve(cache, [1] * 64)
    first = audited(cache, [2] * 32)
    assert first.copies.offloads == ((3, 0), (2, 1))
    second = audited(cache, [3] * 32)
    assert second.copies == NO_COPIES

    stats = cache.stats()
    assert (stats.rejected_offloads, stats.cached, stats.host_cached) == (2, 0, 0)
    cache.acknowledge(first.copies.copy_id)
    cache.audit()
    assert cache.stats().host_free == 2  # what followed the dropped blocks went with them


def test_the_least_recently_released_leave_the_host_first_and_tails_before_heads() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=4)
    serve(cache, [1] * 32)
    serve(cache, [2] * 32)
    push_out(cache)
    serve(cache, [3] * 64)
    sequence = cache.acquire(WHO, [4])  # pushes one block out of the GPU, which takes a slot
    cache.acknowledge(sequence.copies.copy_id)
    assert (hit(cache, [1] * 33), hit(cache, [2] * 33)) == (16, 32)
    for hits in ((0, 32), (0, 16), (0, 0)):
        cache.acknowledge(cache.append(sequence, [4] * 16).copy_id)
        assert (hit(cache, [1] * 33), hit(cache, [2] * 33)) == hits


def test_a_slot_that_is_read_by_a_load_is_not_taken() -> None:
    cache = BlockCache(num_blocks=6, host_blocks=3)
    swapped_out(cache)
    loading = audited(cache, HISTORY[:17])
    assert [slot for slot, _ in loading.copies.loads] == [2]
    serve(cache, [2] * 64)
    other = audited(cache, [3] * 64)
    assert {slot for _, slot in other.copies.offloads} == {0, 1}
    assert hit(cache, HISTORY[:17]) == 16


def test_a_request_that_does_not_fit_changes_nothing_on_either_tier() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=3)
    swapped_out(cache)
    serve(cache, [2] * 32)
    cache.acquire(WHO, [3] * 16)
    before = cache.stats()
    with pytest.raises(PoolExhausted) as refused:
        cache.acquire(WHO, [*HISTORY, 7])
    assert refused.value.details == {"needed": 4, "available": 3}
    assert cache.stats() == before
    cache.audit()

    again = cache.acquire(WHO, [*HISTORY[:32], 7])
    assert again.copies.copy_id == 2  # the refused one has used none
    assert again.copies.offloads == ((3, 0),)  # two blocks went, for the one slot not to be read
    assert again.copies.loads == ((2, 0), (1, 2))


def test_a_reset_drops_both_tiers_and_what_is_pending() -> None:
    cache = BlockCache(num_blocks=3, host_blocks=3)
    serve(cache, HISTORY)
    other = cache.acquire(WHO, [2] * 48)
    cache.release(other)
    cache.reset()
    cache.audit()
    stats = cache.stats()
    assert (stats.free, stats.host_free, stats.pending_copies) == (3, 3, 0)
    with pytest.raises(UnknownCopy):
        cache.acknowledge(other.copies.copy_id)

    serve(cache, HISTORY)
    assert cache.acquire(WHO, [2] * 48).copies.copy_id == other.copies.copy_id + 1


def test_what_is_loaded_counts_as_hit_and_as_loaded_and_a_preempted_prompt_as_no_query() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=8)
    swapped_out(cache)
    before = cache.stats()
    first = cache.acquire(WHO, [*HISTORY, 7])
    stats = cache.stats()
    assert stats.query_tokens - before.query_tokens == 49
    assert stats.hit_tokens - before.hit_tokens == 48
    assert stats.loaded_tokens - before.loaded_tokens == 48

    cache.acknowledge(first.copies.copy_id)
    cache.release(first)
    cache.acquire(WHO, [*HISTORY, 7], resumed=True)
    swapped_in = cache.stats()
    assert swapped_in.query_tokens == stats.query_tokens
    assert swapped_in.hit_tokens == stats.hit_tokens
    assert swapped_in.recomputed_tokens == 1
    assert swapped_in.loaded_tokens - stats.loaded_tokens == 48


def test_every_block_and_slot_is_in_one_state() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=8)
    swapped_out(cache)
    cache.acquire(WHO, [*HISTORY[:32], 7])
    assert cache.stats() == Stats(
        num_blocks=4,
        free=1,
        cached=0,
        private=3,
        evictable=0,
        live_sequences=1,
        query_tokens=48 + 64 + 33,
        hit_tokens=32,
        evicted_blocks=3,
        recomputed_tokens=0,
        host_blocks=8,
        host_free=5,
        host_cached=3,
        loaded_tokens=32,
        offloaded_blocks=3,
        rejected_offloads=0,
        pending_copies=1,
    )


def test_without_slots_nothing_is_offloaded() -> None:
    cache = BlockCache(num_blocks=3)
    serve(cache, HISTORY)
    other = cache.acquire(WHO, [2] * 48)
    assert other.copies is NO_COPIES
    assert cache.host_blocks == 0
    stats = cache.stats()
    assert (stats.evicted_blocks, stats.offloaded_blocks, stats.rejected_offloads) == (3, 0, 0)


def test_a_turn_in_delta_form_goes_on_from_a_history_on_the_host() -> None:
    cache = BlockCache(num_blocks=4, host_blocks=8)
    sequence = cache.acquire(WHO, HISTORY)
    cache.commit(sequence, 48)
    end = sequence.findable_prefix
    cache.release(sequence)
    push_out(cache)

    assert cache.match(WHO, [7], after=end).num_host_tokens == 48
    next_turn = cache.acquire(WHO, [7], after=end)
    cache.audit()
    assert (next_turn.num_tokens, next_turn.num_loaded_tokens) == (49, 48)
    cache.acknowledge(next_turn.copies.copy_id)
    cache.commit(next_turn, 49)
    assert hit(cache, [*HISTORY, 7]) == 48


def test_a_turn_in_delta_form_finds_no_more_of_its_history_than_its_extra_keys_allow() -> None:
    """The history was with a picture; the turn leaves it out, so it is about something else."""
    cache = BlockCache(num_blocks=4, host_blocks=8)
    picture = [(20, 24, b"picture")]
    sequence = cache.acquire(WHO, HISTORY, picture)
    cache.commit(sequence, 48)
    end = sequence.findable_prefix
    cache.release(sequence)
    push_out(cache)

    assert cache.match(WHO, [7], picture, after=end).num_cached_tokens == 48
    assert cache.match(WHO, [7], after=end).num_cached_tokens == 16
