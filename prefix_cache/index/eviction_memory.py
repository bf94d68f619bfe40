"""What was evicted lately: enough to tell "was here" from "was never here"."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple


class Trim(NamedTuple):
    """``blocks`` consecutive blocks of one chain that went together, after ``release`` releases."""

    last_hash: bytes
    blocks: int
    release: int


class EvictionMemory:
    """The latest ``capacity`` trims, each by the hash of its first block."""

    __slots__ = ("_capacity", "_trims")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._trims: OrderedDict[bytes, Trim] = OrderedDict()

    def remember(self, first_hash: bytes, trim: Trim) -> None:
        """Take note of a trim; the oldest known goes where there is no room."""
        self._trims.pop(first_hash, None)
        self._trims[first_hash] = trim
        if len(self._trims) > self._capacity:
            self._trims.popitem(last=False)

    def longest(self, hashes: Sequence[bytes]) -> tuple[int, int] | None:
        """How many leading blocks are known to be evicted, and the release before the first was.

        Where the chain leaves a trim before its end, the first block of it is all that is known.
        """
        known = 0
        release = 0
        while known < len(hashes) and (trim := self._trims.get(hashes[known])):
            release = release if known else trim.release
            after = known + trim.blocks
            if after > len(hashes) or hashes[after - 1] != trim.last_hash:
                return known + 1, release
            known = after
        return (known, release) if known else None
