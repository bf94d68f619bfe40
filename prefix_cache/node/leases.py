"""Leases: until when a number is kept that nobody touches."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

# Entries of ended leases that the heap may hold beside those of running ones.
_SLACK = 64


@dataclass(slots=True)
class _Lease:
    seconds: float
    deadline: float


class Leases:
    """Numbers with a deadline each, which every touch puts off again.

    Touching is a write; the heap, with one entry for each lease, learns of it when the earlier
    deadline comes up.  ``clock`` returns seconds and never goes back.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._leases: dict[int, _Lease] = {}
        self._deadlines: list[tuple[float, int]] = []

    def grant(self, number: int, seconds: float) -> None:
        """Keep ``number``, which has no lease yet, for ``seconds``."""
        deadline = self._clock() + seconds
        self._leases[number] = _Lease(seconds, deadline)
        heapq.heappush(self._deadlines, (deadline, number))

    def touch(self, number: int) -> None:
        """Begin the lease of ``number`` anew."""
        lease = self._leases[number]
        lease.deadline = self._clock() + lease.seconds

    def seconds(self, number: int) -> float:
        """How long ``number`` is kept untouched."""
        return self._leases[number].seconds

    def end(self, number: int) -> None:
        """Forget ``number``."""
        del self._leases[number]
        if len(self._deadlines) > 2 * len(self._leases) + _SLACK:
            self._deadlines = [(lease.deadline, n) for n, lease in self._leases.items()]
            heapq.heapify(self._deadlines)

    def has_run_out(self, number: int) -> bool:
        """Whether ``number`` has a lease, and it has run out."""
        lease = self._leases.get(number)
        return lease is not None and lease.deadline <= self._clock()

    def first(self) -> tuple[int, float] | None:
        """The number whose lease runs out first, and the seconds until then; 0.0: it has."""
        while self._deadlines:
            deadline, number = self._deadlines[0]
            lease = self._leases.get(number)
            if lease is None:
                heapq.heappop(self._deadlines)
            elif lease.deadline > deadline:
                heapq.heapreplace(self._deadlines, (lease.deadline, number))
            else:
                return number, max(0.0, deadline - self._clock())
        return None
