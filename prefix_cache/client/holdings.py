"""Which blocks a node holds, learnt from its events."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from prefix_cache.client.stream_position import StreamPosition
from prefix_cache.index.events import BlocksRemoved, BlocksStored, Cleared
from prefix_cache.wire import NodeEvent, SnapshotStarted

# Ended incarnations whose late events are known as such.
_MAX_ENDED = 1000


class NodeHoldings:
    """The chain hashes of the blocks that one node holds.

    Apply the events of one node in the order in which they came, whatever stream they came on.
    ``position`` says what to watch from.
    """

    def __init__(self) -> None:
        self.position = StreamPosition()
        self._incarnation = 0
        self._ended: deque[int] = deque(maxlen=_MAX_ENDED)
        self._hashes: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._hashes)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._hashes)

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    def held(self, block_hashes: Iterable[bytes]) -> int:
        """How many blocks of a chain are held, counted from its first without a hole."""
        count = 0
        for block_hash in block_hashes:
            if block_hash not in self._hashes:
                break
            count += 1
        return count

    def apply(self, event: NodeEvent) -> None:
        """Take note of an event; one that was applied before changes nothing.

        A new incarnation makes all earlier claims void; events of the earlier one that come late
        change nothing.  Raises ``EventGap`` when events before this one were missed: nothing is
        known to be wrong, but something may be, until the node has been watched from
        ``position`` on.
        """
        if event.incarnation != self._incarnation:
            if event.incarnation in self._ended:
                return
            self._ended.append(self._incarnation)
            self._incarnation = event.incarnation
            self._hashes.clear()
            self.position = StreamPosition()
        if not self.position.advance(event):
            return
        match event.event:
            case BlocksStored(block_hashes):
                self._hashes.update(block_hashes)
            case BlocksRemoved(block_hashes):
                self._hashes.difference_update(block_hashes)
            case Cleared() | SnapshotStarted():
                self._hashes.clear()
