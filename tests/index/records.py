"""What the naive model answers and announces: blocks go by keys, never by hashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from prefix_cache import Identity

ExtraKey = tuple[int, int | None, bytes | None]


class Block(NamedTuple):
    """What one full block adds to its chain."""

    tokens: tuple[int, ...]
    extra_keys: frozenset[tuple[int, int, bytes]]  # (start, end, key), relative to the block


class Key(NamedTuple):
    """A full block with everything before it."""

    who: Identity
    blocks: tuple[Block, ...]

    @property
    def parent(self) -> Key | None:
        return Key(self.who, self.blocks[:-1]) if len(self.blocks) > 1 else None


class Stored(NamedTuple):
    keys: tuple[Key, ...]


class Removed(NamedTuple):
    keys: tuple[Key, ...]


class Emptied(NamedTuple):
    pass


Event = Stored | Removed | Emptied


class Hit(NamedTuple):
    num_cached_tokens: int
    block_ids: list[int]
    num_host_tokens: int = 0


class Copies(NamedTuple):
    copy_id: int
    offloads: tuple[tuple[int, int], ...]
    loads: tuple[tuple[int, int], ...]


NO_COPIES = Copies(0, (), ())


class Appended(NamedTuple):
    new_block_ids: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]
    offloads: tuple[tuple[int, int], ...] = ()
    copy_id: int = 0


@dataclass(frozen=True)
class Stats:
    num_blocks: int
    free: int
    cached: int
    private: int
    evictable: int
    live_sequences: int
    query_tokens: int
    hit_tokens: int
    evicted_blocks: int
    host_blocks: int = 0
    host_free: int = 0
    host_cached: int = 0
    loaded_tokens: int = 0
    offloaded_blocks: int = 0
    rejected_offloads: int = 0
    pending_copies: int = 0
