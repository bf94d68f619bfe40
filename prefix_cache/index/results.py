"""What the calls of ``BlockCache`` return."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BlockIds = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Prefix:
    """A committed prefix: the hash of its last block, and its tokens, all in full blocks."""

    block_hash: bytes
    num_tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """Longest cached prefix: tokens (a multiple of the block size) and their blocks (int32)."""

    num_cached_tokens: int
    block_ids: BlockIds


@dataclass(frozen=True, slots=True)
class Appended:
    """``new_block_ids`` were added to the block table.

    Each ``(src, dst)`` of ``copies`` is a block the worker copies before it writes: ``dst`` has
    replaced the shared ``src`` at the end of the table as it was (copy-on-write).
    """

    new_block_ids: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Stats:
    """Blocks by state (``free + cached + private == num_blocks``) and what was counted so far.

    ``evictable`` are the cached blocks that nobody uses.  ``query_tokens`` and ``hit_tokens``
    count the tokens of a prompt once, when it was acquired; ``recomputed_tokens`` are those that
    preempted sequences had to compute again.
    """

    num_blocks: int
    free: int
    cached: int
    private: int
    evictable: int
    live_sequences: int
    query_tokens: int
    hit_tokens: int
    evicted_blocks: int
    recomputed_tokens: int
