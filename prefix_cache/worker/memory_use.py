"""How much of the KV memory that sequences hold is filled, and how much of it they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prefix_cache.worker.running_sequence import RunningSequence


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Blocks of live sequences, each counted once, and the ``slots`` in them for one token each.

    ``filled_slots`` hold a token's KV.  Without sharing there would be ``unshared_blocks``.
    """

    blocks: int
    slots: int
    filled_slots: int
    unshared_blocks: int

    @property
    def share_filled(self) -> float:
        """Share of the slots that hold a token; 1 where there are no slots."""
        return self.filled_slots / self.slots if self.slots else 1.0

    @property
    def share_saved(self) -> float:
        """Share of the blocks that sharing saves; 0 where there are none."""
        return 1 - self.blocks / self.unshared_blocks if self.unshared_blocks else 0.0


def memory_use(sequences: Iterable[RunningSequence], block_size: int) -> MemoryUse:
    """Count the blocks in the tables of ``sequences``."""
    filled: dict[int, int] = {}
    unshared = 0
    for sequence in sequences:
        unshared += len(sequence.block_table)
        for index, block in enumerate(sequence.block_table):
            tokens = min(block_size, max(0, sequence.num_computed - index * block_size))
            filled[block] = max(filled.get(block, 0), tokens)
    return MemoryUse(len(filled), len(filled) * block_size, sum(filled.values()), unshared)
