"""Extra keys: what besides tokens changes the KV of a range of positions.

The usual case is a picture: all its placeholders carry one token id, so the digest of the
picture goes in as a key over their positions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from prefix_cache.errors import InvalidExtraKeys

ExtraKey = tuple[int, int | None, bytes | None]


class ExtraKeys:
    """The extra keys of one sequence, seen block by block.

    ``limit`` is the first block that may neither be found nor become findable, because a key
    over it is not known (``None``); without such a key it is ``None``.  Raises
    ``InvalidExtraKeys`` for anything but ``(start, end | None, key: bytes | None)`` with
    ``0 <= start < end``.
    """

    __slots__ = ("_block_size", "_ranges", "limit")

    def __init__(self, extra_keys: Iterable[ExtraKey], block_size: int) -> None:
        self._block_size = block_size
        self._ranges: list[tuple[int, int | None, bytes]] = []
        self.limit: int | None = None
        if not isinstance(extra_keys, Iterable):
            raise InvalidExtraKeys(f"extra keys are {extra_keys!r}, expected an iterable of them")
        for entry in extra_keys:
            start, end, key = _checked(entry)
            if key is not None:
                self._ranges.append((start, end, key))
            elif self.limit is None or start // block_size < self.limit:
                self.limit = start // block_size

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def for_block(self, index: int) -> bytes:
        """Encode the keys that touch block ``index``; empty when none does.

        Ranges are clipped to the block and relative to it, so that the encoding does not depend
        on how far a range reaches beyond.
        """
        if not self._ranges:
            return b""
        first = index * self._block_size
        after = first + self._block_size
        entries = {
            (max(start, first) - first, min(after if end is None else end, after) - first, key)
            for start, end, key in self._ranges
            if start < after and (end is None or end > first)
        }
        return b"".join(
            struct.pack("<III", start, end, len(key)) + key for start, end, key in sorted(entries)
        )

    def for_blocks(self, first: int, after: int) -> dict[int, bytes]:
        """Encoded keys of the blocks that have any, counted from ``first``, up to ``after``."""
        if not self._ranges:
            return {}
        encoded = ((index - first, self.for_block(index)) for index in range(first, after))
        return {index: keys for index, keys in encoded if keys}


def _checked(entry: ExtraKey) -> ExtraKey:
    try:
        start, end, key = entry
    except (TypeError, ValueError):
        raise _invalid(entry) from None
    if (
        not isinstance(start, int)
        or not isinstance(end, int | None)
        or not isinstance(key, bytes | None)
        or start < 0
        or (end is not None and end <= start)
    ):
        raise _invalid(entry)
    return start, end, key


def _invalid(entry: object) -> InvalidExtraKeys:
    return InvalidExtraKeys(
        f"extra key {entry!r}: expected (start, end or None, key as bytes or None) "
        "with 0 <= start < end",
        value=repr(entry),
    )
