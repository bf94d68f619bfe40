"""What changed in the set of findable blocks.  Without time: the order is the order of calls."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.index.identity import Identity


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """Consecutive blocks of one chain became findable.

    ``token_ids`` are those of these blocks, uint32 little-endian.  ``parent_block_hash`` is the
    hash of the block before the first, ``None`` where a chain begins.  ``extra_keys`` has one
    encoded entry per block, empty where there is none.
    """

    block_hashes: tuple[bytes, ...]
    parent_block_hash: bytes | None
    token_ids: bytes
    block_size: int
    extra_keys: tuple[bytes, ...]
    identity: Identity


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """Blocks were evicted, in this order."""

    block_hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Every block is gone."""


Event = BlocksStored | BlocksRemoved | Cleared
