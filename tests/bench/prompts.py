"""Prompts, as bytes, that share with a base as much as they shall hit."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator

import numpy as np

from prefix_cache import Identity
from prefix_cache.index.tokens import TOKEN_BYTES

BLOCK_SIZE = 16
WHO = Identity(model="bench")

_VOCABULARY = 128_000
# Ids beyond the vocabulary, so that a prompt that begins to differ never meets another one.
_numbers = itertools.count(_VOCABULARY)


def random_tokens(count: int, seed: int = 0) -> bytes:
    """Token ids of a vocabulary of 128,000."""
    return np.random.default_rng(seed).integers(_VOCABULARY, size=count, dtype="<u4").tobytes()


def unique_token() -> bytes:
    """A token that no prompt had before."""
    return struct.pack("<I", next(_numbers))


def unlike_from(base: bytes, num_tokens: int) -> bytes:
    """``base`` with a new token after its first ``num_tokens``; behind its end, if that is all."""
    at = num_tokens * TOKEN_BYTES
    return base[:at] + unique_token() + base[at + TOKEN_BYTES :]


def new_prompts(num_tokens: int) -> Iterator[bytes]:
    """Prompts of which no two share a block."""
    base = random_tokens(num_tokens)
    while True:
        yield unlike_from(base, 0)
