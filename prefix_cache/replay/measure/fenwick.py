"""Sums of numbers that change, by a Fenwick tree."""

from __future__ import annotations


class Fenwick:
    """Numbers at places from 1 on, all 0 at first; it grows as it is used."""

    def __init__(self) -> None:
        self._sums = [0] * 2
        self._total = 0

    def add(self, place: int, number: int) -> None:
        """Add to the number at a place, in logarithmic time."""
        while place >= len(self._sums):
            # In a tree twice as large, the place in the middle sums up all before it.
            self._sums += [0] * len(self._sums)
            self._sums[len(self._sums) // 2] = self._total
        self._total += number
        while place < len(self._sums):
            self._sums[place] += number
            place += place & -place

    def after(self, place: int) -> int:
        """Return the sum of the numbers behind a place, in logarithmic time."""
        total = self._total
        while place:
            total -= self._sums[place]
            place &= place - 1
        return total
