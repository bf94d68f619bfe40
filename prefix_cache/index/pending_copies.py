"""Copies between GPU and host that workers were told to make and have not spoken of since."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from prefix_cache.errors import UnknownCopy
from prefix_cache.index.run import Run


@dataclass(frozen=True, slots=True)
class PendingCopy:
    """What hangs on one copy.

    ``offloads`` tells for each slot that is written the run that its block was in; ``sources`` are
    the slots read by loads, ``targets`` the blocks written by them.
    """

    offloads: dict[int, Run]
    sources: array[int]
    targets: array[int]


class PendingCopies:
    """All pending copies by their number, which is never used again."""

    def __init__(self) -> None:
        self._pending: dict[int, PendingCopy] = {}
        self._opened = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, copy_id: int) -> bool:
        return copy_id in self._pending

    def all(self) -> list[PendingCopy]:
        """Every pending copy, oldest first."""
        return list(self._pending.values())

    def open(self, copy: PendingCopy) -> int:
        """Keep a copy; returns its number, from 1 on."""
        self._opened += 1
        self._pending[self._opened] = copy
        return self._opened

    def close(self, copy_id: int) -> PendingCopy:
        """Let a copy go.  Raises ``UnknownCopy`` where none of this number is pending."""
        try:
            return self._pending.pop(copy_id)
        except KeyError:
            raise UnknownCopy(f"copy {copy_id} is not pending", copy_id=copy_id) from None

    def clear(self) -> None:
        """Forget all of them; their numbers are unknown from now on."""
        self._pending.clear()
