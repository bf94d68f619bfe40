"""What one watcher is told: replayed events where they are still there, else a snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from prefix_cache.node.event_log import EventLog
from prefix_cache.wire import NodeEvent, SnapshotEnded, SnapshotStarted


class Watch:
    """One watcher's way through the log: the number of the last event it was told.

    ``incarnation`` and ``number`` are where it says it has come to, 0 and 0 for nowhere.
    """

    def __init__(self, log: EventLog, incarnation: int, number: int, *, with_tokens: bool) -> None:
        self._log = log
        self._incarnation = incarnation
        self._number = number
        self._with_tokens = with_tokens

    def news(self) -> Iterator[NodeEvent]:
        """All that there is to tell now.  The log may go on while this is read."""
        log = self._log
        while (self._incarnation, self._number) != (log.incarnation, log.last):
            if log.reaches(self._incarnation, self._number):
                self._number += 1
                yield NodeEvent(self._incarnation, self._number, log.event(self._number))
            else:
                yield from self._snapshot()

    async def wait(self) -> None:
        """Return once there is news, or will never be any."""
        await self._log.wait_beyond(self._incarnation, self._number)

    def _snapshot(self) -> Iterator[NodeEvent]:
        """Tell a snapshot; cut short, and to be begun again, where the log has left it behind."""
        snapshot = self._log.snapshot(with_tokens=self._with_tokens)
        incarnation, number = snapshot.incarnation, snapshot.number
        yield NodeEvent(incarnation, number, SnapshotStarted())
        for stored in snapshot.blocks:
            yield NodeEvent(incarnation, number, stored)
        if self._log.reaches(incarnation, number):
            yield NodeEvent(incarnation, number, SnapshotEnded())
            self._incarnation, self._number = incarnation, number
