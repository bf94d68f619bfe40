"""Sequences of words: compared, and packed into as few bytes a word as they need."""

from __future__ import annotations

import numpy as np

from prefix_cache.index.tokens import TOKEN_BYTES


def common_bytes(
    one: bytes | bytearray, at: int, other: bytes, there: int, width: int = TOKEN_BYTES
) -> int:
    """Bytes that two sequences have in common from two places on, in words of ``width`` bytes."""
    count = min(len(one) - at, len(other) - there)
    if not count:
        return 0
    differ = np.frombuffer(one, np.uint8, count, at) != np.frombuffer(other, np.uint8, count, there)
    first = int(differ.argmax())
    return (first if differ[first] else count) // width * width


def width_of(words: bytes) -> int:
    """Return how many bytes the largest word needs, 1 at least."""
    largest = int(np.frombuffer(words, "<u4").max(initial=1))
    return -(-largest.bit_length() // 8)


def packed(words: bytes, width: int) -> bytes:
    """Return the words in ``width`` bytes each, as many as each needs or more."""
    if width == TOKEN_BYTES:
        return words
    return np.frombuffer(words, np.uint8).reshape(-1, TOKEN_BYTES)[:, :width].tobytes()


def unpacked(words: bytes | bytearray, width: int) -> bytes:
    """Return words of ``width`` bytes each as they were before."""
    whole = np.zeros((len(words) // width, TOKEN_BYTES), np.uint8)
    whole[:, :width] = np.frombuffer(words, np.uint8).reshape(-1, width)
    return whole.tobytes()
