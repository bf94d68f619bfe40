"""A run: consecutive blocks of one chain that has no fork inside it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain
from typing import TypeVar

import numpy as np

from prefix_cache.index.extra_keys import ExtraKeys
from prefix_cache.index.identity import Identity
from prefix_cache.index.tokens import TOKEN_BYTES

Buffer = TypeVar("Buffer", bytearray, "array[int]")


class Run:
    """The blocks of a run, in growable buffers, and its place in the tree.

    ``users`` counts the live sequences whose committed part ends here; ``uses`` adds the children
    in use.  ``stamp`` tells the release that left the run unused; it means nothing in a run in
    use.  A run ``on_host`` has slots for blocks; nobody uses it, and all that follows it is on the
    host too.  Nobody keeps a view into the buffers: a buffer that is viewed cannot grow.
    """

    __slots__ = (
        "blocks",
        "children",
        "extra",
        "hash_size",
        "hashes",
        "on_host",
        "parent",
        "stamp",
        "tokens",
        "users",
        "uses",
    )

    def __init__(self, parent: Run | None, hash_size: int) -> None:
        self.parent = parent
        self.hash_size = hash_size
        self.tokens = bytearray()
        self.hashes = bytearray()
        self.blocks = array("i")
        self.extra: dict[int, bytes] = {}  # encoded extra keys by block; none for most
        self.children: dict[bytes, list[Run]] = {}  # by the hash of their first block
        self.on_host = False
        self.users = 0
        self.uses = 0
        self.stamp = 0

    @property
    def first_hash(self) -> bytes:
        """Hash of the first block: the key under which the parent keeps this run."""
        return bytes(self.hashes[: self.hash_size])

    @property
    def last_hash(self) -> bytes:
        """Hash that the next block of the chain is hashed with."""
        return bytes(self.hashes[-self.hash_size :])

    def hash_at(self, index: int) -> bytes:
        """Hash of one block."""
        return bytes(self.hashes[index * self.hash_size : (index + 1) * self.hash_size])

    def only_child(self) -> Run | None:
        """Return the child of a run that has exactly one."""
        if len(self.children) != 1:
            return None
        bucket = next(iter(self.children.values()))
        return bucket[0] if len(bucket) == 1 else None

    def all_children(self) -> Iterator[Run]:
        """Children of all buckets."""
        return chain.from_iterable(self.children.values())

    def put_child(self, child: Run) -> None:
        """Add a child."""
        child.parent = self
        self.children.setdefault(child.first_hash, []).append(child)

    def drop_child(self, child: Run, first_hash: bytes) -> None:
        """Remove a child that is kept under ``first_hash``."""
        bucket = self.children[first_hash]
        bucket.remove(child)
        if not bucket:
            del self.children[first_hash]

    def common_blocks(
        self,
        begin: int,
        tokens: bytes | bytearray,
        start: int,
        count: int,
        first: int,
        extra_keys: ExtraKeys,
    ) -> int:
        """How many blocks from ``begin`` on equal those of ``tokens`` from byte ``start`` on.

        At most ``count`` blocks are compared; ``first`` is the place of the first of them in its
        sequence.
        """
        rest = len(self.blocks) - begin
        count = min(count, rest)
        block_bytes = len(self.tokens) // len(self.blocks)
        mine = memoryview(self.tokens)[begin * block_bytes :] if begin else self.tokens
        if count < rest:
            mine = memoryview(mine)[: count * block_bytes]
        if tokens.startswith(mine, start):
            equal = count
        else:
            equal = _equal_bytes(mine, tokens, start, count * block_bytes) // block_bytes
        if self.extra or extra_keys:
            for index in range(equal):
                if self.extra.get(begin + index, b"") != extra_keys.for_block(first + index):
                    return index
        return equal

    def extend(
        self,
        tokens: bytes | bytearray,
        hashes: bytearray,
        blocks: array[int],
        extra: dict[int, bytes],
    ) -> None:
        """Add blocks at the end; ``extra`` counts from the first of them."""
        before = len(self.blocks)
        self.tokens += tokens
        self.hashes += hashes
        self.blocks += blocks
        for index, key in extra.items():
            self.extra[before + index] = key

    def cut_front(self, at: int) -> Run:
        """Move the first ``at`` blocks into a new run, which is returned without relations."""
        front = Run(None, self.hash_size)
        block_bytes = len(self.tokens) // len(self.blocks)
        front.tokens, self.tokens = _cut(self.tokens, at * block_bytes)
        front.hashes, self.hashes = _cut(self.hashes, at * self.hash_size)
        front.blocks, self.blocks = _cut(self.blocks, at)
        extra = self.extra
        front.on_host = self.on_host
        front.extra = {index: key for index, key in extra.items() if index < at}
        self.extra = {index - at: key for index, key in extra.items() if index >= at}
        return front

    def put_front(self, front: Run) -> None:
        """Take over all blocks of ``front``, which precede these; copies this run's own."""
        front.extend(self.tokens, self.hashes, self.blocks, self.extra)
        self.tokens, self.hashes, self.blocks = front.tokens, front.hashes, front.blocks
        self.extra = front.extra
        front.tokens, front.hashes, front.blocks = bytearray(), bytearray(), array("i")
        front.extra = {}

    def trim(self, count: int) -> array[int]:
        """Drop the last ``count`` blocks and return them, last first."""
        keep = len(self.blocks) - count
        block_bytes = len(self.tokens) // len(self.blocks)
        dropped = self.blocks[keep:][::-1]
        del self.blocks[keep:]
        del self.tokens[keep * block_bytes :]
        del self.hashes[keep * self.hash_size :]
        if self.extra:
            self.extra = {index: key for index, key in self.extra.items() if index < keep}
        return dropped


class Root(Run):
    """Where the chains of an identity begin: no blocks, and the hash of the identity."""

    __slots__ = ("identity",)

    def __init__(self, identity: Identity, root_hash: bytes) -> None:
        super().__init__(None, len(root_hash))
        self.hashes += root_hash
        self.identity = identity


def _equal_bytes(
    mine: bytearray | memoryview, tokens: bytes | bytearray, start: int, size: int
) -> int:
    """Length of the longest common prefix, in whole tokens, of ``size`` bytes of each."""
    ours = np.frombuffer(mine, np.uint32, size // TOKEN_BYTES)
    theirs = np.frombuffer(tokens, np.uint32, size // TOKEN_BYTES, offset=start)
    differ = ours != theirs
    at = int(differ.argmax())
    return at * TOKEN_BYTES if differ[at] else size


def _cut(buffer: Buffer, at: int) -> tuple[Buffer, Buffer]:
    """Split a buffer in two, copying the shorter half only."""
    if 2 * at < len(buffer):
        front = buffer[:at]
        del buffer[:at]
        return front, buffer
    back = buffer[at:]
    del buffer[at:]
    return buffer, back
