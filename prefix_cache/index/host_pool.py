"""Host slots: which are free, which pending copies touch, and which the tree has given up."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection

from prefix_cache.index.free_list import FreeList


class HostPool(FreeList):
    """Slots of the host tier.

    A slot is free, cached (in the prefix tree) or held: the tree has given it up, but a pending
    copy still reads or writes it.  It becomes free with the last of these copies.
    """

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self.held: set[int] = set()
        # Written by a pending copy each: what they shall hold is not known to be there.
        self.arriving: set[int] = set()
        self.readers: Counter[int] = Counter()  # pending copies that read a slot

    @property
    def cached(self) -> int:
        """Slots in the tree, whatever is still arriving included."""
        return self.size - self.free - len(self.held)

    def take(self, count: int) -> array[int]:
        """Take ``count`` free slots for the tree."""
        return self._take_free(count)

    def give_back(self, slots: array[int]) -> None:
        """The tree has given these up, one after the other."""
        if self._any_touched(slots):
            self.held.update(slot for slot in slots if self._is_touched(slot))
            slots = array("i", [slot for slot in slots if not self._is_touched(slot)])
        self._given_back += slots

    def begin_writing(self, slots: Collection[int]) -> None:
        """A pending copy writes these, which no other touches."""
        self.arriving.update(slots)

    def end_writing(self, slots: Collection[int]) -> None:
        """The copy that wrote these is over."""
        self.arriving.difference_update(slots)
        self._let_go(slots)

    def begin_reading(self, slots: array[int]) -> None:
        """A pending copy reads these, which are written."""
        self.readers.update(slots)

    def end_reading(self, slots: array[int]) -> None:
        """A copy that read these is over."""
        for slot in slots:
            others = self.readers.pop(slot) - 1
            if others:
                self.readers[slot] = others
        self._let_go(slots)

    def idle_tail(self, slots: array[int], limit: int) -> int:
        """How many of the last ``limit`` slots, from the end on, no pending copy touches."""
        tail = slots[-limit:]
        if self._any_touched(tail):
            for count, slot in enumerate(reversed(tail)):
                if self._is_touched(slot):
                    return count
        return len(tail)

    def written(self, slots: array[int]) -> array[int]:
        """The leading slots whose content is known to be there."""
        if not self.arriving.isdisjoint(slots):
            for index, slot in enumerate(slots):
                if slot in self.arriving:
                    return slots[:index]
        return slots

    def _is_touched(self, slot: int) -> bool:
        return slot in self.arriving or slot in self.readers

    def _any_touched(self, slots: array[int]) -> bool:
        return not (self.arriving.isdisjoint(slots) and self.readers.keys().isdisjoint(slots))

    def _let_go(self, slots: Collection[int]) -> None:
        """Free those of ``slots`` that only a copy has held."""
        if self.held:
            freed = [slot for slot in slots if slot in self.held and not self._is_touched(slot)]
            self.held.difference_update(freed)
            self._given_back.extend(freed)
