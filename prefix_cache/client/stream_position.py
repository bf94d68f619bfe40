"""How far a node's events were followed, and whether one of them is the next."""

from __future__ import annotations

from prefix_cache.client.requests import uint64
from prefix_cache.errors import EventGap
from prefix_cache.index.events import BlocksStored
from prefix_cache.wire import NodeEvent, SnapshotEnded, SnapshotStarted


class StreamPosition:
    """The last event seen: its ``incarnation`` and ``number``, 0 and 0 while there is none.

    This is what a watch goes on from.  Within a snapshot there is none: half of one is of no use.
    """

    def __init__(self, incarnation: int = 0, number: int = 0) -> None:
        self.incarnation = uint64("incarnation", incarnation)
        self.number = uint64("number", number)
        self._snapshot_of = 0  # incarnation, while within a snapshot

    def advance(self, event: NodeEvent) -> bool:
        """Go on to ``event``; return False, and stay, for one that was seen before.

        Raises ``EventGap``, and stays, when events before it were missed.
        """
        match event.event:
            case SnapshotStarted():
                self.incarnation, self.number = 0, 0
                self._snapshot_of = event.incarnation
                return True
            case BlocksStored() if event.incarnation == self._snapshot_of:
                return True
            case SnapshotEnded() if event.incarnation == self._snapshot_of:
                expected = event.number
            case _:
                # Another incarnation begins without any blocks.
                expected = 1 + (self.number if event.incarnation == self.incarnation else 0)
        if event.number < expected:
            return False
        if event.number > expected:
            raise _gap(expected, event)
        self.incarnation, self.number = event.incarnation, event.number
        self._snapshot_of = 0
        return True


def _gap(expected: int, event: NodeEvent) -> EventGap:
    return EventGap(
        f"event {event.number} of incarnation {event.incarnation} came, event {expected} was "
        "expected: watch again from the last event seen",
        number=event.number,
        incarnation=event.incarnation,
        expected=expected,
    )
