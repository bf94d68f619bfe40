"""What was evicted lately: enough to tell "was here" from "was never here"."""

from __future__ import annotations

from collections import deque


class EvictionMemory:
    """Hashes of about the latest ``capacity`` evicted blocks.

    Evicting pays for one small object per run that loses blocks; asking pays for the rest.
    """

    __slots__ = ("_capacity", "_hash_size", "_num_hashes", "_trims")

    def __init__(self, capacity: int, hash_size: int) -> None:
        self._capacity = capacity
        self._hash_size = hash_size
        self._num_hashes = 0
        # Hashes of blocks that went together, and how many releases there had been.
        self._trims: deque[tuple[bytes, int]] = deque()

    def remember(self, hashes: bytes, release: int) -> None:
        """Blocks were evicted after ``release`` releases; the oldest known make room."""
        self._trims.append((hashes, release))
        self._num_hashes += len(hashes) // self._hash_size
        while self._num_hashes > self._capacity and len(self._trims) > 1:
            oldest, _ = self._trims.popleft()
            self._num_hashes -= len(oldest) // self._hash_size

    def releases_by_hash(self) -> dict[bytes, int]:
        """For each hash, how many releases there had been when its block was evicted last."""
        size = self._hash_size
        return {
            hashes[at : at + size]: release
            for hashes, release in self._trims
            for at in range(0, len(hashes), size)
        }
