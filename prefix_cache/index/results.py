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
    """Longest cached prefix: tokens (a multiple of the block size) and their blocks (int32).

    The last ``num_host_tokens`` of the tokens lie on the host, and ``block_ids`` names the blocks
    before them.
    """

    num_cached_tokens: int
    block_ids: BlockIds
    num_host_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Copies:
    """What the worker copies between GPU and host for one call.

    First each ``(block, slot)`` of ``offloads``, once the block is written and before anybody
    writes it again; then each ``(slot, block)`` of ``loads``, before anybody reads the block.
    ``copy_id`` is what it acknowledges or withdraws; 0 where there is nothing to copy.
    """

    copy_id: int
    offloads: tuple[tuple[int, int], ...]
    loads: tuple[tuple[int, int], ...]


NO_COPIES = Copies(0, (), ())


@dataclass(frozen=True, slots=True)
class Appended:
    """``new_block_ids`` were added to the block table.

    Each ``(src, dst)`` of ``copies`` is a block the worker copies before it writes: ``dst`` has
    replaced the shared ``src`` at the end of the table as it was (copy-on-write).  Before these
    come the ``offloads``, as in ``Copies``, of which ``copy_id`` is the number.
    """

    new_block_ids: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]
    offloads: tuple[tuple[int, int], ...] = ()
    copy_id: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Blocks by state (``free + cached + private == num_blocks``) and what was counted so far.

    ``evictable`` are the cached blocks that nobody uses.  ``query_tokens`` and ``hit_tokens``
    count the tokens of a prompt once, when it was acquired; ``recomputed_tokens`` are those that
    preempted sequences had to compute again.

    On the host ``host_free`` slots hold nothing and ``host_cached`` are cached, or will be once
    their copy is acknowledged; the rest of ``host_blocks`` waits for the end of a copy.
    ``loaded_tokens`` are cached tokens that came by loads, for preempted sequences too.
    ``offloaded_blocks`` are those of ``evicted_blocks`` that a worker was told to copy to a slot,
    ``rejected_offloads`` those for which there was none; where one call evicts more than the host
    takes, the rest was displaced in that call.  ``pending_copies`` are neither acknowledged nor
    withdrawn.
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
    host_blocks: int
    host_free: int
    host_cached: int
    loaded_tokens: int
    offloaded_blocks: int
    rejected_offloads: int
    pending_copies: int
