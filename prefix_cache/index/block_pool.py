"""Physical block numbers: which are free, and who holds those that cannot be found.

A block is free, private (held by one live sequence, or by it and its forks) or cached (in the
prefix tree).  The pool keeps the first two apart; what it has handed over to the tree comes back
by eviction only.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable


class BlockPool:
    """Free list and holders of private blocks.

    What was given back last is taken first, then blocks that were never used, from 0 on.
    """

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self.private = 0
        self._given_back = array("i")
        self._used = 0  # blocks from this one on were never taken
        # Holders beyond the first; most private blocks have one holder and no entry.
        self._more_holders: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that hold nothing."""
        return len(self._given_back) + self.num_blocks - self._used

    @property
    def cached(self) -> int:
        """Blocks handed over to the tree."""
        return self.num_blocks - self.free - self.private

    def take(self, count: int) -> array[int]:
        """Make ``count`` free blocks private to a new holder."""
        rest = max(0, len(self._given_back) - count)
        taken = self._given_back[rest:][::-1]
        del self._given_back[rest:]
        fresh = count - len(taken)
        if fresh:
            taken.extend(range(self._used, self._used + fresh))
            self._used += fresh
        self.private += count
        return taken

    def take_over(self, blocks: array[int]) -> None:
        """Evicted blocks are private to a new holder from now on."""
        self.private += len(blocks)

    def is_shared(self, block: int) -> bool:
        """Whether a private block has more than one holder."""
        return block in self._more_holders

    def holders(self, block: int) -> int:
        """How many sequences hold a private block."""
        return 1 + self._more_holders.get(block, 0)

    def share(self, blocks: Iterable[int]) -> None:
        """Add a holder to each of these private blocks."""
        for block in blocks:
            self._more_holders[block] = self._more_holders.get(block, 0) + 1

    def give_back(self, blocks: array[int]) -> None:
        """Take a holder from each; blocks without any become free, the first to come out first."""
        if self._more_holders:
            blocks = array("i", [block for block in blocks if not self._drop_holder(block)])
        self.private -= len(blocks)
        self._given_back += blocks[::-1]

    def hand_over(self, blocks: array[int]) -> None:
        """Private blocks, whoever holds them, are in the tree from now on."""
        self.private -= len(blocks)
        if self._more_holders:
            for block in blocks:
                self._more_holders.pop(block, None)

    def free_blocks(self) -> list[int]:
        """All free blocks."""
        return [*self._given_back, *range(self._used, self.num_blocks)]

    def _drop_holder(self, block: int) -> bool:
        """Take one holder away; whether another remains."""
        more = self._more_holders.pop(block, 0)
        if more > 1:
            self._more_holders[block] = more - 1
        return more > 0
