"""Compares what the cache announces, in hashes, with what the model announces, in keys."""

from __future__ import annotations

from typing import Any

from prefix_cache.index.events import BlocksRemoved, BlocksStored, Cleared

from .records import Emptied, Event, Key, Removed, Stored
from .stories import packed


class Announced:
    """Learns the hash of a key when it is first announced, and holds the cache to it."""

    def __init__(self, block_size: int) -> None:
        self.block_size = block_size
        self.hashes: dict[Key, bytes] = {}
        self.encodings: dict[frozenset[tuple[int, int, bytes]], bytes] = {}  # of extra keys

    def check(self, event: Any, expected: Event) -> None:
        match expected:
            case Stored():
                self._learn(event, expected)
                assert event == self._stored(expected)
            case Removed():
                assert event == BlocksRemoved(tuple(self.hashes[key] for key in expected.keys))
            case Emptied():
                assert event == Cleared()

    def all_hashes_differ(self) -> bool:
        return _all_differ(self.hashes)

    def _learn(self, event: Any, expected: Stored) -> None:
        assert isinstance(event, BlocksStored)
        assert len(event.block_hashes) == len(expected.keys)
        for key, block_hash, encoded in zip(
            expected.keys, event.block_hashes, event.extra_keys, strict=True
        ):
            extra_keys = key.blocks[-1].extra_keys
            self.hashes.setdefault(key, block_hash)
            self.encodings.setdefault(extra_keys, encoded)
            assert bool(encoded) == bool(extra_keys)
        assert _all_differ(self.encodings)

    def _stored(self, expected: Stored) -> BlocksStored:
        first, blocks = expected.keys[0], [key.blocks[-1] for key in expected.keys]
        return BlocksStored(
            block_hashes=tuple(self.hashes[key] for key in expected.keys),
            parent_block_hash=self.hashes[first.parent] if first.parent else None,
            token_ids=b"".join(packed(block.tokens) for block in blocks),
            block_size=self.block_size,
            extra_keys=tuple(self.encodings[block.extra_keys] for block in blocks),
            identity=first.who,
        )


def _all_differ(names: dict[Any, bytes]) -> bool:
    return len(set(names.values())) == len(names)
