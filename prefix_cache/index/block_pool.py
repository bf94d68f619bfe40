"""Physical block numbers: which are free, and who holds those that cannot be found.

A block is free, private (held by one live sequence, or by it and its forks) or cached (in the
prefix tree).  The pool keeps the first two apart; what it has handed over to the tree comes back
by eviction only.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable

from prefix_cache.index.free_list import FreeList


class BlockPool(FreeList):
    """Free list and holders of private blocks: live sequences, and loads that still write."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__(num_blocks)
        self.private = 0
        # Holders beyond the first; most private blocks have one holder and no entry.
        self._more_holders: Counter[int] = Counter()

    @property
    def cached(self) -> int:
        """Blocks handed over to the tree."""
        return self.size - self.free - self.private

    def take(self, count: int) -> array[int]:
        """Make ``count`` free blocks private to a new holder."""
        self.private += count
        return self._take_free(count)

    def take_over(self, blocks: array[int]) -> None:
        """Evicted blocks are private to a new holder from now on."""
        self.private += len(blocks)

    def is_shared(self, block: int) -> bool:
        """Whether a private block has more than one holder."""
        return block in self._more_holders

    def holders(self, block: int) -> int:
        """How many holders a private block has."""
        return 1 + self._more_holders[block]

    def share(self, blocks: Iterable[int]) -> None:
        """Add a holder to each of these private blocks."""
        self._more_holders.update(blocks)

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

    def _drop_holder(self, block: int) -> bool:
        """Take one holder away; whether another remains."""
        more = self._more_holders.pop(block, 0)
        if more > 1:
            self._more_holders[block] = more - 1
        return more > 0
