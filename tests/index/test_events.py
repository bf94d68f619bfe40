"""Events tell every change of what can be found, in order, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from xxhash import xxh3_128_digest

from prefix_cache import BlockCache, PoolExhausted
from prefix_cache.index.events import BlocksRemoved, BlocksStored, Cleared

from .stories import WHO, hit, packed, serve


@pytest.fixture
def events() -> list[Any]:
    return []


@pytest.fixture
def cache(events: list[Any]) -> BlockCache:
    return BlockCache(num_blocks=4, on_event=events.append)


def test_a_commit_announces_its_new_blocks_at_once(cache: BlockCache, events: list[Any]) -> None:
    sequence = cache.acquire(WHO, list(range(40)), [(20, 24, b"k")])
    assert events == []

    cache.commit(sequence, 40)

    (stored,) = events
    assert isinstance(stored, BlocksStored)
    assert len(stored.block_hashes) == 2
    assert stored.parent_block_hash is None
    assert stored.token_ids == packed(range(32))
    assert stored.block_size == 16
    assert stored.extra_keys[0] == b""
    assert stored.extra_keys[1] != b""
    assert stored.identity == WHO


def test_each_hash_covers_its_parent_its_tokens_and_its_extra_keys(
    cache: BlockCache, events: list[Any]
) -> None:
    serve(cache, list(range(48)), extra_keys=[(20, 24, b"k")])

    (stored,) = events
    first, second, third = stored.block_hashes
    assert second == xxh3_128_digest(first + packed(range(16, 32)) + stored.extra_keys[1])
    assert third == xxh3_128_digest(second + packed(range(32, 48)))


def test_a_later_commit_names_the_block_it_follows(cache: BlockCache, events: list[Any]) -> None:
    sequence = cache.acquire(WHO, list(range(48)))
    cache.commit(sequence, 16)
    cache.commit(sequence, 31)
    cache.commit(sequence, 48)

    first, second = events
    assert second.parent_block_hash == first.block_hashes[0]
    assert second.token_ids == packed(range(16, 48))


def test_a_call_that_evicts_announces_it_once_tail_first(
    cache: BlockCache, events: list[Any]
) -> None:
    serve(cache, [1] * 32)
    serve(cache, [2] * 32)
    old, newer = (event.block_hashes for event in events)
    events.clear()

    cache.acquire(WHO, [3] * 48)

    assert events == [BlocksRemoved((old[1], old[0], newer[1]))]
    assert cache.stats().evicted_blocks == 3


def test_what_fails_or_changes_nothing_findable_announces_nothing(
    cache: BlockCache, events: list[Any]
) -> None:
    running = cache.acquire(WHO, [1] * 48)
    cache.match(WHO, [1] * 48)
    cache.fork(running)
    with pytest.raises(PoolExhausted):
        cache.acquire(WHO, [2] * 32)
    cache.release(running)
    assert events == []


def test_reset_announces_that_all_is_gone(cache: BlockCache, events: list[Any]) -> None:
    serve(cache, [1] * 48)
    serve(cache, [2] * 48)
    evicted = cache.stats().evicted_blocks
    events.clear()

    cache.reset()

    assert events == [Cleared()]
    assert cache.stats().evicted_blocks == evicted == 2
    assert cache.stats().free == 4


def test_a_listener_that_fails_does_not_harm_the_cache(caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: object) -> None:
        raise RuntimeError("listener")

    cache = BlockCache(num_blocks=4, on_event=fail)
    serve(cache, [1] * 48)
    assert hit(cache, [1] * 48) == 32
    cache.audit()
    assert "listener" in caplog.text
