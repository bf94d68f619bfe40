"""Sequences of words, compared."""

from __future__ import annotations

import numpy as np

from prefix_cache.index.tokens import TOKEN_BYTES


def common_bytes(one: bytes | bytearray, at: int, other: bytes, there: int) -> int:
    """Bytes that two sequences have in common from two places on, in whole words."""
    count = min(len(one) - at, len(other) - there) // TOKEN_BYTES
    if not count:
        return 0
    differ = np.frombuffer(one, "<u4", count, at) != np.frombuffer(other, "<u4", count, there)
    first = int(differ.argmax())
    return TOKEN_BYTES * (first if differ[first] else count)
