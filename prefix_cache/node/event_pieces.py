"""Events cut into pieces that a message holds, whatever a client commits or evicts at once."""

from __future__ import annotations

from collections.abc import Iterator

from prefix_cache.index import BlocksRemoved, BlocksStored, Cleared, Event

# As many as an event of a snapshot tells.
_MAX_BLOCKS = 1_024


def in_pieces(event: Event) -> Iterator[Event]:
    """Yield events of at most 1,024 blocks each that together say what ``event`` says."""
    if isinstance(event, Cleared) or len(event.block_hashes) <= _MAX_BLOCKS:
        yield event
        return
    for start in range(0, len(event.block_hashes), _MAX_BLOCKS):
        stop = start + _MAX_BLOCKS
        if isinstance(event, BlocksStored):
            yield _stored(event, start, stop)
        else:
            yield BlocksRemoved(event.block_hashes[start:stop])


def _stored(event: BlocksStored, start: int, stop: int) -> BlocksStored:
    block_bytes = len(event.token_ids) // len(event.block_hashes)
    return BlocksStored(
        block_hashes=event.block_hashes[start:stop],
        parent_block_hash=event.block_hashes[start - 1] if start else event.parent_block_hash,
        token_ids=event.token_ids[start * block_bytes : stop * block_bytes],
        block_size=event.block_size,
        extra_keys=event.extra_keys[start:stop],
        identity=event.identity,
    )
