"""Chain hashes: each full block is hashed with its tokens and all that came before it.

``h_i = H(h_{i-1} || tokens of block i || extra keys of block i)``, and ``h_{-1}`` stands for the
identity.  H is XXH3 with 128 bits unless another function is given.  The parent and the tokens
have fixed lengths and the extra keys come length-prefixed, so nothing can be read two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import repeat

import numpy as np
from xxhash import xxh3_128_digest

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.identity import Identity
from prefix_cache.index.tokens import TOKEN_BYTES

HashFunction = Callable[[bytes, bytes, bytes], bytes]

MIN_HASH_BYTES = 8
MAX_HASH_BYTES = 64


def native_hash(parent: bytes, block: bytes, extra: bytes) -> bytes:
    """XXH3-128 of the three parts, in its canonical (big-endian) form: 16 bytes."""
    return xxh3_128_digest(parent + block + extra)


class BlockHasher:
    """Hashes blocks of one size with one function.  ``size`` is the length of a hash in bytes.

    Raises ``InvalidArgument`` when the function returns anything but bytes of one fixed length
    from 8 to 64.
    """

    __slots__ = ("_block_bytes", "_block_size", "_function", "block", "size")

    block: HashFunction
    """Chain hash of one full block: ``block(parent, tokens, encoded extra keys)``."""

    def __init__(self, block_size: int, hash_function: HashFunction | None) -> None:
        self._block_size = block_size
        self._block_bytes = block_size * TOKEN_BYTES
        if hash_function is not None and not callable(hash_function):
            raise InvalidArgument(f"hash_function is {hash_function!r}, expected a function")
        self._function = hash_function or native_hash
        probe = self._function(b"", b"", b"")
        if not isinstance(probe, bytes) or not MIN_HASH_BYTES <= len(probe) <= MAX_HASH_BYTES:
            raise InvalidArgument(
                f"hash_function returned {probe!r}, expected "
                f"{MIN_HASH_BYTES} to {MAX_HASH_BYTES} bytes",
                value=repr(probe),
            )
        self.size = len(probe)
        # Finding pays for every call in between.
        self.block = native_hash if hash_function is None else self._checked_block

    def root(self, identity: Identity) -> bytes:
        """Hash that stands before the first block of every chain of ``identity``."""
        return self.block(b"", identity.encode(self._block_size), b"")

    def chain(self, parent: bytes, tokens: bytes, extra: Mapping[int, bytes]) -> bytearray:
        """Hashes of the full blocks of ``tokens``, which follow ``parent``, one behind the other.

        ``extra`` has the encoded extra keys by block, counted from the first.
        """
        function = self._function
        blocks = _pieces(tokens, self._block_bytes)
        keys = (extra.get(index, b"") for index in range(len(blocks))) if extra else repeat(b"")
        hashes = []
        # The hot loop of a prefill: nothing but one call per block.
        for block, key in zip(blocks, keys, strict=False):
            parent = function(parent, block, key)
            hashes.append(parent)
        if not {self.size}.issuperset(map(len, hashes)):
            raise self._wrong_length(next(made for made in hashes if len(made) != self.size))
        return bytearray(b"".join(hashes))

    def split(self, hashes: bytes | bytearray) -> tuple[bytes, ...]:
        """Single hashes out of a chain of them."""
        return tuple(_pieces(hashes, self.size))

    def _checked_block(self, parent: bytes, block: bytes, extra: bytes) -> bytes:
        digest = self._function(parent, block, extra)
        if len(digest) != self.size:
            raise self._wrong_length(digest)
        return digest

    def _wrong_length(self, digest: bytes) -> InvalidArgument:
        return InvalidArgument(
            f"hash_function returned {len(digest)} bytes, and {self.size} before: "
            "expected one length",
            length=len(digest),
            expected=self.size,
        )


def _pieces(data: bytes | bytearray, size: int) -> list[bytes]:
    """Cut into pieces of ``size`` bytes; for many, several times faster than slicing."""
    if len(data) <= size:
        return [bytes(data)] if data else []
    pieces: list[bytes] = np.frombuffer(data, np.dtype((np.void, size))).tolist()
    return pieces
