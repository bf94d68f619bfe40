"""Words in which the stories of this folder are told."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from prefix_cache import BlockCache, Identity, Sequence
from prefix_cache.index.events import BlocksStored, Event

from .records import ExtraKey

WHO = Identity(model="m")
HISTORY = [1] * 48


def packed(token_ids: Iterable[int]) -> bytes:
    """Tokens as uint32 little-endian."""
    return b"".join(struct.pack("<I", token_id) for token_id in token_ids)


def serve(
    cache: BlockCache,
    tokens: list[int],
    who: Identity = WHO,
    extra_keys: Iterable[ExtraKey] = (),
) -> list[int]:
    """Play a whole request (acquire, commit everything, release); returns its block table."""
    sequence = cache.acquire(who, tokens, extra_keys)
    cache.commit(sequence, sequence.num_tokens)
    cache.release(sequence)
    return table(sequence.block_table)


def push_out(cache: BlockCache) -> None:
    """Send all that is cached to the host, for a prompt that needs every block and is cancelled."""
    other = cache.acquire(WHO, [9] * 16 * cache.num_blocks)
    cache.acknowledge(other.copies.copy_id)
    cache.release(other)


def swapped_out(cache: BlockCache, tokens: list[int] = HISTORY) -> None:
    """Serve a prompt and send it to the host."""
    serve(cache, tokens)
    push_out(cache)


def audited(cache: BlockCache, tokens: list[int]) -> Sequence:
    """Acquire and audit."""
    sequence = cache.acquire(WHO, tokens)
    cache.audit()
    return sequence


def hit(
    cache: BlockCache,
    tokens: list[int],
    who: Identity = WHO,
    extra_keys: Iterable[ExtraKey] = (),
) -> int:
    """How many tokens of a prompt are cached."""
    return cache.match(who, tokens, extra_keys).num_cached_tokens


def table(block_table: Iterable[int]) -> list[int]:
    return [int(block) for block in block_table]


def stored_hashes(events: Iterable[Event]) -> list[bytes]:
    """Hashes of all blocks that became findable, in order."""
    return [
        block_hash
        for event in events
        if isinstance(event, BlocksStored)
        for block_hash in event.block_hashes
    ]


def chain_hashes(
    tokens: list[int], who: Identity = WHO, extra_keys: Iterable[ExtraKey] = ()
) -> list[bytes]:
    """Hashes of the full blocks of a prompt, as a fresh cache announces them."""
    events: list[Event] = []
    serve(BlockCache(num_blocks=64, on_event=events.append), tokens, who, extra_keys)
    return stored_hashes(events)
