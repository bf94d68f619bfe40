"""Chain hashes: each full block is hashed with its tokens and all that came before it.

``h_i = H(h_{i-1} || tokens of block i || extra keys of block i)``, and ``h_{-1}`` stands for the
identity.  H is XXH3 with 128 bits unless another function is given.  The parent and the tokens
have fixed lengths and the extra keys come length-prefixed, so nothing can be read two ways.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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

    __slots__ = ("_block_bytes", "_block_size", "_function", "size")

    def __init__(self, block_size: int, hash_function: HashFunction | None) -> None:
        self._block_size = block_size
        self._block_bytes = block_size * TOKEN_BYTES
        self._function = hash_function or native_hash
        probe = self._function(b"", b"", b"")
        if not isinstance(probe, bytes) or not MIN_HASH_BYTES <= len(probe) <= MAX_HASH_BYTES:
            raise InvalidArgument(
                f"hash_function returned {probe!r}, expected "
                f"{MIN_HASH_BYTES} to {MAX_HASH_BYTES} bytes",
                value=repr(probe),
            )
        self.size = len(probe)

    def root(self, identity: Identity) -> bytes:
        """Hash that stands before the first block of every chain of ``identity``."""
        return self._checked(self._function(b"", identity.encode(self._block_size), b""))

    def block(self, parent: bytes, block: bytes, extra: bytes) -> bytes:
        """Chain hash of one full block."""
        return self._checked(self._function(parent, block, extra))

    def chain(self, parent: bytes, tokens: bytes, extra: Mapping[int, bytes]) -> bytearray:
        """Hashes of the full blocks of ``tokens``, which follow ``parent``, one behind the other.

        ``extra`` has the encoded extra keys by block, counted from the first.
        """
        block_bytes = self._block_bytes
        hashes = bytearray()
        # The hot loop of a prefill: one call per block, of the function itself.
        for index, at in enumerate(range(0, len(tokens), block_bytes)):
            parent = self._function(parent, tokens[at : at + block_bytes], extra.get(index, b""))
            if len(parent) != self.size:
                raise self._wrong_length(parent)
            hashes += parent
        return hashes

    def split(self, hashes: bytearray) -> tuple[bytes, ...]:
        """Single hashes out of a chain of them."""
        size = self.size
        return tuple(bytes(hashes[at : at + size]) for at in range(0, len(hashes), size))

    def _checked(self, digest: bytes) -> bytes:
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
