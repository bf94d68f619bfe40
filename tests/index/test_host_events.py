"""Events tell what is cached on either tier, or on its way there; only the last copy is missed."""

from __future__ import annotations

import random

from prefix_cache import BlockCache, PoolExhausted, Sequence
from prefix_cache.index import BlocksRemoved, BlocksStored, Cleared, Event

from .stories import HISTORY, WHO, chain_hashes, push_out, serve, swapped_out


class Mirror:
    """Follows the events of a cache."""

    def __init__(self) -> None:
        self.held: set[bytes] = set()
        self.events: list[Event] = []

    def follow(self, event: Event) -> None:
        self.events.append(event)
        match event:
            case BlocksStored():
                assert self.held.isdisjoint(event.block_hashes)
                assert event.parent_block_hash is None or event.parent_block_hash in self.held
                self.held.update(event.block_hashes)
            case BlocksRemoved():
                assert self.held.issuperset(event.block_hashes)
                self.held.difference_update(event.block_hashes)
            case Cleared():
                self.held.clear()


def new_cache(num_blocks: int, host_blocks: int) -> tuple[BlockCache, Mirror]:
    mirror = Mirror()
    cache = BlockCache(num_blocks, host_blocks=host_blocks, on_event=mirror.follow)
    return cache, mirror


def test_what_goes_to_the_host_and_comes_back_is_announced_once() -> None:
    cache, mirror = new_cache(num_blocks=4, host_blocks=8)
    swapped_out(cache)
    again = cache.acquire(WHO, [*HISTORY, 7])
    cache.acknowledge(again.copies.copy_id)
    cache.commit(again, 49)
    assert mirror.held == set(chain_hashes(HISTORY))
    assert len(mirror.events) == 1


def test_what_the_host_evicts_is_removed_in_that_order() -> None:
    cache, mirror = new_cache(num_blocks=3, host_blocks=3)
    swapped_out(cache)
    serve(cache, [2] * 48)
    push_out(cache)
    assert mirror.events[2:] == [BlocksRemoved(tuple(reversed(chain_hashes(HISTORY))))]
    assert mirror.held == set(chain_hashes([2] * 48))


def test_a_rejected_block_is_removed_after_what_followed_it_on_the_host() -> None:
    cache, mirror = new_cache(num_blocks=3, host_blocks=1)
    serve(cache, HISTORY)
    cache.acquire(WHO, [2])  # its copy holds the slot
    cache.acquire(WHO, [3])
    head, middle, tail = chain_hashes(HISTORY)
    assert mirror.events[1:] == [BlocksRemoved((tail, middle))]
    assert mirror.held == {head}


def test_a_withdrawn_offload_is_removed() -> None:
    cache, mirror = new_cache(num_blocks=3, host_blocks=3)
    serve(cache, HISTORY)
    other = cache.acquire(WHO, [2] * 48)
    assert mirror.held == set(chain_hashes(HISTORY))
    cache.withdraw(other.copies.copy_id)
    assert mirror.events[1:] == [BlocksRemoved(tuple(reversed(chain_hashes(HISTORY))))]


def test_a_loaded_block_whose_copy_the_host_lost_is_announced_when_it_is_committed() -> None:
    cache, mirror = new_cache(num_blocks=6, host_blocks=1)
    swapped_out(cache, [1] * 16)
    loaded = cache.acquire(WHO, [1] * 17)
    cache.acknowledge(loaded.copies.copy_id)
    serve(cache, [2] * 64)
    cache.acquire(WHO, [3])  # a block of the other prompt takes the only slot
    assert mirror.held.isdisjoint(chain_hashes([1] * 16))

    cache.commit(loaded, 16)
    assert mirror.held.issuperset(chain_hashes([1] * 16))


def test_a_snapshot_tells_of_both_tiers() -> None:
    cache, mirror = new_cache(num_blocks=4, host_blocks=8)
    serve(cache, HISTORY)
    cache.acquire(WHO, [2] * 32)  # the end of the history is on its way to the host
    told = Mirror()
    for event in cache.snapshot():
        told.follow(event)
    assert told.held == mirror.held == set(chain_hashes(HISTORY))


def test_who_follows_the_events_holds_what_is_cached_or_on_its_way() -> None:
    chance = random.Random(7)
    cache, mirror = new_cache(num_blocks=12, host_blocks=7)
    running: list[Sequence] = []
    pending: list[int] = []
    for _ in range(1_000):
        if pending and chance.random() < 0.6:
            end = cache.acknowledge if chance.random() < 0.8 else cache.withdraw
            end(pending.pop(chance.randrange(len(pending))))
        prompt = [chance.randrange(5)] * chance.randint(1, 60) + [chance.randrange(5)] * 20
        try:
            sequence = cache.acquire(WHO, prompt)
        except PoolExhausted:
            cache.release(running.pop())
        else:
            running.append(sequence)
            if sequence.copies.copy_id:
                pending.append(sequence.copies.copy_id)
            if sequence.copies.copy_id not in pending:
                cache.commit(sequence, len(prompt))
        if len(running) > 2:
            cache.release(running.pop(0))
        stats = cache.stats()
        assert len(mirror.held) == stats.cached + stats.host_cached
    told = Mirror()
    for event in cache.snapshot():
        told.follow(event)
    assert told.held == mirror.held
    assert cache.stats().loaded_tokens > 0
