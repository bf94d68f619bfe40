"""A snapshot tells what is findable, as if it had been stored just now."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from prefix_cache import BlockCache, Identity
from prefix_cache.index.events import BlocksRemoved, BlocksStored, Event

from .stories import WHO, chain_hashes, packed, serve, stored_hashes

OTHER = Identity(model="m", salt="s")


def findable(events: list[Event]) -> dict[bytes, Any]:
    """What each findable block is, by its hash, after these events."""
    blocks: dict[bytes, Any] = {}
    for event in events:
        if isinstance(event, BlocksStored):
            parent = event.parent_block_hash
            for index, block_hash in enumerate(event.block_hashes):
                assert parent is None or parent in blocks, "a block came before its parent"
                tokens = event.token_ids[index * 64 : (index + 1) * 64]
                blocks[block_hash] = (parent, tokens, event.extra_keys[index], event.identity)
                parent = block_hash
        elif isinstance(event, BlocksRemoved):
            for block_hash in event.block_hashes:
                del blocks[block_hash]
    return blocks


def test_a_snapshot_tells_the_same_as_all_events_before_it() -> None:
    """A pool that evicts, prompts that fork, extra keys, two identities: same blocks in the end."""
    events: list[Event] = []
    cache = BlockCache(num_blocks=40, on_event=events.append)
    random = Random(7)
    for _ in range(300):
        tokens = [random.randrange(2)] * 32 + [random.randrange(3)] * random.randrange(1, 200)
        keys = [(20, 24, b"k")] if random.randrange(2) else []
        serve(cache, tokens, random.choice([WHO, OTHER]), keys)

    assert findable(list(cache.snapshot())) == findable(events)
    assert len(findable(events)) == cache.stats().cached > 30


def test_an_empty_cache_has_an_empty_snapshot() -> None:
    assert list(BlockCache().snapshot()) == []


def test_a_snapshot_does_not_change_with_the_cache() -> None:
    cache = BlockCache(num_blocks=8)
    serve(cache, [1] * 48)
    snapshot = cache.snapshot()
    cache.reset()
    serve(cache, [2] * 48)
    assert stored_hashes(snapshot) == chain_hashes([1] * 48)


def test_without_tokens_the_hashes_are_the_same() -> None:
    cache = BlockCache(num_blocks=8)
    serve(cache, list(range(48)))
    (with_tokens,) = cache.snapshot()
    (without,) = cache.snapshot(with_tokens=False)
    assert with_tokens.token_ids == packed(range(48))
    assert without == replace(with_tokens, token_ids=b"")


def test_a_long_run_is_told_in_parts_that_follow_each_other() -> None:
    cache = BlockCache(num_blocks=2500)
    tokens = list(range(2500 * 16))
    serve(cache, tokens)
    parts = list(cache.snapshot())
    assert [len(part.block_hashes) for part in parts] == [1024, 1024, 452]
    assert [part.parent_block_hash for part in parts] == [
        None,
        parts[0].block_hashes[-1],
        parts[1].block_hashes[-1],
    ]
    assert b"".join(part.token_ids for part in parts) == packed(tokens)


def test_who_reads_a_dropped_snapshot_comes_to_the_end_early() -> None:
    cache = BlockCache(num_blocks=8)
    serve(cache, [1] * 32)
    serve(cache, [2] * 32)
    snapshot = cache.snapshot()
    reading = iter(snapshot)
    next(reading)
    snapshot.drop()
    assert list(reading) == []
