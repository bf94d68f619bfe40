"""The sequences that unary calls opened: each ends when it is not touched within its lease."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from prefix_cache.errors import LeaseExpired, WorkerRestarted
from prefix_cache.index import Sequence
from prefix_cache.node.leases import Leases
from prefix_cache.node.node import Node
from prefix_cache.node.quotas import Holding
from prefix_cache.node.sequences import NumberedSequences
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import check_lease, duration_from_wire

# Expired sequences whose late callers are told why; later they are merely unknown.
_MAX_REMEMBERED = 10_000

# Sequences ended in one go when many leases run out at once: some milliseconds' work.
_BATCH = 100


class LeasedSequences(NumberedSequences):
    """Sequences of all unary callers together.

    Each call that names a sequence touches it.  Once its lease has run out no call finds it any
    more, be the timer late or not: ``LeaseExpired``.  Nor does one find what was open when the
    claims were lost: ``WorkerRestarted``.
    """

    def __init__(self, node: Node, clock: Callable[[], float] = monotonic) -> None:
        super().__init__(node)
        node.on_claims_lost.add(self._lose)
        self._leases = Leases(clock)
        self._expired: OrderedDict[int, float] = OrderedDict()
        self._lost: frozenset[int] = frozenset()
        self._timer: asyncio.TimerHandle | None = None

    def lease_s(self, request: node_pb2.AcquireRequest | node_pb2.ForkRequest) -> float:
        """Seconds that a sequence gets; raises ``InvalidArgument`` for what no lease may have."""
        config = self._node.config
        if not request.HasField("lease"):
            return config.lease_s
        seconds = duration_from_wire(request.lease)
        check_lease(seconds)
        return min(seconds, config.max_lease_s)

    def grant(self, number: int, seconds: float) -> None:
        """Give the sequence ``number``, just opened, a lease."""
        self._leases.grant(number, seconds)
        self._wake_in(seconds)

    def end_expired(self) -> None:
        """End sequences whose lease has run out; the timer calls it when the first one has."""
        self._timer = None
        for _ in range(_BATCH):
            first = self._leases.first()
            if first is None:
                return
            number, seconds = first
            if seconds:
                self._wake_in(seconds)
                return
            self._expire(number)
        self._wake_in(0.0)

    def _find(self, number: int) -> tuple[Sequence, Holding]:
        if self._leases.has_run_out(number):
            self._expire(number)
        if number in self._expired:
            seconds = self._expired[number]
            raise LeaseExpired(
                f"sequence {number} has ended: its lease of {seconds:g} s ran out untouched",
                sequence_id=number,
                lease_s=seconds,
            )
        if number in self._lost:
            raise WorkerRestarted(
                f"sequence {number} has ended with the KV memory of its worker: "
                f"the worker's epoch is {self._node.epochs.current} now",
                sequence_id=number,
                current=self._node.epochs.current,
            )
        found = super()._find(number)
        self._leases.touch(number)
        return found

    def _end(self, number: int) -> None:
        super()._end(number)
        self._leases.end(number)

    def _lose(self) -> None:
        """End every sequence; callers are told why until it happens again."""
        self._lost = frozenset(self._sequences)
        self.end_all()

    def _expire(self, number: int) -> None:
        self._expired[number] = self._leases.seconds(number)
        if len(self._expired) > _MAX_REMEMBERED:
            self._expired.popitem(last=False)
        self._end(number)
        self._node.leases_expired += 1

    def _wake_in(self, seconds: float) -> None:
        """Have ``end_expired`` called then, unless it will be before."""
        loop = asyncio.get_running_loop()
        when = loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self.end_expired)
