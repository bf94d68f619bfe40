"""Buddy allocation: contiguous places of powers of two, halved and joined again."""

from __future__ import annotations

import heapq


class Buddy:
    """``num_slots`` slots in places of 2^n slots, each beginning at a multiple of its size.

    The lowest place that is large enough, and no larger than needed, is taken first.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self.free = num_slots
        # Per order n the free places of 2^n slots: a heap, and a set that says which still are.
        self._heaps: list[list[int]] = [[] for _ in range(num_slots.bit_length())]
        self._sets: list[set[int]] = [set() for _ in self._heaps]
        start = 0
        for order in reversed(range(len(self._heaps))):
            if num_slots >> order & 1:
                self._put(order, start)
                start += 1 << order

    @staticmethod
    def size_of(count: int) -> int:
        """Return the slots that a request for ``count`` of them takes."""
        return 1 << (count - 1).bit_length()

    def take(self, count: int) -> int | None:
        """Return where ``count`` slots begin; None where no place is large enough."""
        order = (count - 1).bit_length()
        found = next((n for n in range(order, len(self._heaps)) if self._sets[n]), None)
        if found is None:
            return None
        start = self._lowest(found)
        for half in reversed(range(order, found)):
            self._put(half, start + (1 << half))
        self.free -= 1 << order
        return start

    def give_back(self, start: int, count: int) -> None:
        """Give back what ``take(count)`` returned."""
        order = (count - 1).bit_length()
        self.free += 1 << order
        while (buddy := start ^ (1 << order)) in self._sets[order]:
            self._sets[order].remove(buddy)
            start = min(start, buddy)
            order += 1
        self._put(order, start)

    def _put(self, order: int, start: int) -> None:
        self._sets[order].add(start)
        heapq.heappush(self._heaps[order], start)

    def _lowest(self, order: int) -> int:
        while True:
            start = heapq.heappop(self._heaps[order])
            if start in self._sets[order]:
                self._sets[order].remove(start)
                return start
