"""A live sequence: its block table, how much of it is committed, and what it holds alone."""

from __future__ import annotations

from array import array

import numpy as np

from prefix_cache.errors import ForeignSequence, ReleasedSequence, UnknownSequence
from prefix_cache.index.extra_keys import ExtraKeys
from prefix_cache.index.results import NO_COPIES, BlockIds, Prefix
from prefix_cache.index.run import Run
from prefix_cache.index.tokens import TOKEN_BYTES


class Sequence:
    """A live sequence of a ``BlockCache``, opened by ``acquire`` or ``fork``.

    Read ``id``, ``block_table``, ``num_tokens``, ``num_cached_tokens`` (found at acquire; the last
    ``num_loaded_tokens`` of them on the host), ``num_committed_tokens``, ``copies`` (those of the
    acquire, to be made once, however many forks there are) and, before the release,
    ``findable_prefix``; everything else belongs to the index.
    """

    __slots__ = (
        "block_size",
        "cache",
        "copies",
        "depth",
        "duplicates",
        "extra_keys",
        "family",
        "id",
        "num_cached_tokens",
        "num_committed_tokens",
        "num_tokens",
        "pending",
        "released",
        "run",
        "table",
    )

    def __init__(
        self,
        cache: object,
        block_size: int,
        sequence_id: int,
        extra_keys: ExtraKeys,
        run: Run,
        depth: int,
        table: array[int],
        pending: bytearray,
    ) -> None:
        self.cache = cache  # the one it belongs to
        self.block_size = block_size
        self.id = sequence_id
        self.extra_keys = extra_keys
        self.run = run  # ends where the findable part ends, `depth` blocks from the root
        self.depth = depth
        self.table = table
        self.pending = pending  # tokens from block `depth` on
        # Own copies, in table order, of blocks that are cached in another copy.
        self.duplicates = array("i")
        # This sequence and its live forks; they may share private blocks.
        self.family = {self}
        self.released = False
        self.num_cached_tokens = self.num_committed_tokens = depth * block_size
        self.num_tokens = self.num_committed_tokens + len(pending) // TOKEN_BYTES
        self.copies = NO_COPIES

    @property
    def block_table(self) -> BlockIds:
        """Physical blocks, one per started block of tokens: int32, a read-only copy."""
        return block_ids(self.table)

    @property
    def num_loaded_tokens(self) -> int:
        """Tokens of ``num_cached_tokens`` whose KV comes by the loads of ``copies``."""
        return len(self.copies.loads) * self.block_size

    @property
    def findable_prefix(self) -> Prefix | None:
        """The part that can be found, as a later prompt in delta form names it.

        Only a live sequence knows: raises ``ReleasedSequence``.
        """
        if self.released:
            raise ReleasedSequence(f"sequence {self.id} was released before", id=self.id)
        if not self.depth:
            return None
        return Prefix(self.run.last_hash, self.depth * self.block_size)

    def fork(self, sequence_id: int) -> Sequence:
        """Return a sequence of the same family with the same blocks."""
        child = Sequence(
            self.cache,
            self.block_size,
            sequence_id,
            self.extra_keys,
            self.run,
            self.depth,
            self.table[:],
            self.pending[:],
        )
        child.duplicates = self.duplicates[:]
        child.num_cached_tokens = self.num_cached_tokens
        child.num_committed_tokens = self.num_committed_tokens
        child.copies = self.copies
        child.family = self.family
        child.family.add(child)
        return child

    def private_blocks(self) -> array[int]:
        """Blocks of the table that cannot be found, in table order."""
        return self.duplicates + self.table[self.depth :]

    def shared_until(self, other: Sequence, stop: int) -> int:
        """How far, up to ``stop``, both tables name the same blocks beyond the findable part."""
        start = self.depth
        mine, theirs = self.table[start:stop], other.table[start:stop]
        if mine == theirs:
            return stop
        both = min(len(mine), len(theirs))
        return start + next((at for at in range(both) if mine[at] != theirs[at]), both)

    def advance(self, run: Run, stop: int, *, keeps_copies: bool) -> None:
        """The findable part ends with block ``stop`` now, which is the last of ``run``.

        ``keeps_copies``: those blocks are cached in another copy, and the table keeps its own.
        """
        if keeps_copies:
            self.duplicates += self.table[self.depth : stop]
        del self.pending[: (stop - self.depth) * self.block_size * TOKEN_BYTES]
        self.run, self.depth = run, stop
        self.num_committed_tokens = max(self.num_committed_tokens, stop * self.block_size)

    def findable_blocks(self, num_tokens: int) -> int:
        """How many blocks may be findable once ``num_tokens`` are committed."""
        full = num_tokens // self.block_size
        limit = self.extra_keys.limit
        return full if limit is None else min(full, limit)


def check_live(seq: object, cache: object) -> None:
    """Raise an ``UnknownSequence`` for anything but a live sequence of ``cache``."""
    if not isinstance(seq, Sequence):
        raise UnknownSequence(f"{seq!r} is no sequence", value=repr(seq))
    if seq.cache is not cache:
        raise ForeignSequence(f"sequence {seq.id} belongs to another cache", id=seq.id)
    if seq.released:
        raise ReleasedSequence(f"sequence {seq.id} was released before", id=seq.id)


def block_ids(blocks: array[int]) -> BlockIds:
    """Block numbers as a read-only numpy array of their own."""
    ids = np.array(blocks, dtype=np.int32)
    ids.flags.writeable = False
    return ids
