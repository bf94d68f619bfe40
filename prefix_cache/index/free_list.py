"""Numbers from 0 on, of blocks or of host slots: which of them are free."""

from __future__ import annotations

from array import array


class FreeList:
    """What was given back last is taken first, then what was never used, from 0 on."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._given_back = array("i")  # the last comes out first
        self._used = 0  # numbers from this one on were never taken

    @property
    def free(self) -> int:
        """How many hold nothing."""
        return len(self._given_back) + self.size - self._used

    def free_numbers(self) -> list[int]:
        """All that hold nothing."""
        return [*self._given_back, *range(self._used, self.size)]

    def _take_free(self, count: int) -> array[int]:
        """Take ``count`` out, which must be there."""
        rest = max(0, len(self._given_back) - count)
        taken = self._given_back[rest:][::-1]
        del self._given_back[rest:]
        fresh = count - len(taken)
        if fresh:
            taken.extend(range(self._used, self._used + fresh))
            self._used += fresh
        return taken
