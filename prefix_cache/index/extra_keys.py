"""Extra keys: what besides tokens changes the KV of a range of positions.

The usual case is a picture: all its placeholders carry one token id, so the digest of the
picture goes in as a key over their positions.
"""

from __future__ import annotations

import operator
import struct
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from itertools import groupby

from prefix_cache.errors import InvalidExtraKeys

ExtraKey = tuple[int, int | None, bytes | None]
_Range = tuple[int, int | None, bytes]

# Each key goes into the hash of each block it touches; more of them are no use but to stall.
MAX_KEYS_PER_BLOCK = 64


class ExtraKeys:
    """The extra keys of one sequence, seen block by block.

    ``limit`` is the first block that may neither be found nor become findable, because a key
    over it is not known (``None``); without such a key it is ``None``.  Raises
    ``InvalidExtraKeys`` for anything but ``(start, end | None, key: bytes | None)`` with
    ``0 <= start < end``, and for more than 64 keys over one block.
    """

    __slots__ = ("_block_size", "_firsts", "_touching", "limit")

    def __init__(self, extra_keys: Iterable[ExtraKey], block_size: int) -> None:
        self._block_size = block_size
        self.limit: int | None = None
        if not isinstance(extra_keys, Iterable):
            raise InvalidExtraKeys(f"extra keys are {extra_keys!r}, expected an iterable of them")
        ranges: set[_Range] = set()
        for entry in extra_keys:
            start, end, key = _checked(entry)
            if key is not None:
                ranges.add((start, end, key))
            elif self.limit is None or start // block_size < self.limit:
                self.limit = start // block_size
        # From block `_firsts[i]` on, up to the next of these, `_touching[i]` are the ranges.
        self._firsts: list[int] = []
        self._touching: list[tuple[_Range, ...]] = []
        if ranges:
            self._sweep(ranges)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def for_block(self, index: int) -> bytes:
        """Encode the keys that touch block ``index``; empty when none does.

        Ranges are clipped to the block and relative to it, so that the encoding does not depend
        on how far a range reaches beyond.
        """
        if not self._firsts:
            return b""
        at = bisect_right(self._firsts, index) - 1
        if at < 0 or not self._touching[at]:
            return b""
        first = index * self._block_size
        after = first + self._block_size
        entries = sorted(
            (max(start, first) - first, min(after if end is None else end, after) - first, key)
            for start, end, key in self._touching[at]
        )
        return b"".join(
            struct.pack("<III", start, end, len(key)) + key
            for (start, end, key), _ in groupby(entries)
        )

    def for_blocks(self, first: int, after: int) -> dict[int, bytes]:
        """Encoded keys of the blocks that have any, counted from ``first``, up to ``after``."""
        if not self._firsts:
            return {}
        encoded = ((index - first, self.for_block(index)) for index in range(first, after))
        return {index: keys for index, keys in encoded if keys}

    def _sweep(self, ranges: set[_Range]) -> None:
        """Find out, for each stretch of blocks, which ranges touch it."""
        begins: dict[int, list[_Range]] = defaultdict(list)
        ends: dict[int, list[_Range]] = defaultdict(list)
        for entry in ranges:
            start, end, _ = entry
            begins[start // self._block_size].append(entry)
            if end is not None:
                ends[(end - 1) // self._block_size + 1].append(entry)
        touching: set[_Range] = set()
        for block in sorted({*begins, *ends}):
            touching.difference_update(ends.get(block, ()))
            touching.update(begins.get(block, ()))
            if len(touching) > MAX_KEYS_PER_BLOCK:
                raise InvalidExtraKeys(
                    f"{len(touching)} extra keys touch block {block}, expected "
                    f"at most {MAX_KEYS_PER_BLOCK}",
                    block=block,
                    keys=len(touching),
                )
            self._firsts.append(block)
            self._touching.append(tuple(touching))


def _checked(entry: ExtraKey) -> ExtraKey:
    try:
        start, end, key = entry
        start = operator.index(start)
        end = None if end is None else operator.index(end)
    except (TypeError, ValueError):
        raise _invalid(entry) from None
    if start < 0 or (end is not None and end <= start) or not isinstance(key, bytes | None):
        raise _invalid(entry)
    return start, end, key


def _invalid(entry: object) -> InvalidExtraKeys:
    return InvalidExtraKeys(
        f"extra key {entry!r}: expected (start, end or None, key as bytes or None) "
        "with 0 <= start < end",
        value=repr(entry),
    )
