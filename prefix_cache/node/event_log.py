"""Every change of the findable blocks, numbered, for as long as there is room to remember it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from weakref import WeakValueDictionary

from prefix_cache.index import BlocksRemoved, BlocksStored, Event, Snapshot
from prefix_cache.node.event_pieces import in_pieces

# Estimates: an event with its place in the ring, and a hash as an object of its own.
_EVENT_BYTES = 512
_HASH_BYTES = 64


class NumberedSnapshot:
    """What was findable after event ``number`` of ``incarnation``."""

    def __init__(self, incarnation: int, number: int, blocks: Snapshot) -> None:
        self.incarnation = incarnation
        self.number = number
        self.blocks = blocks


class EventLog:
    """The latest events of one incarnation, numbered from 1, of about ``max_bytes`` in all.

    Who follows it keeps nothing but the number of the last event seen.  When the events after
    that one are no longer there, the follower goes on from a snapshot.  Followers share
    snapshots, and one that the events no longer go on from is dropped, whoever still reads it:
    so followers cost no memory, however many and however slow they are.
    """

    def __init__(
        self,
        incarnation: int,
        take_snapshot: Callable[[bool], Snapshot],
        max_bytes: int,
    ) -> None:
        self._take_snapshot = take_snapshot
        self._max_bytes = max_bytes
        self._changed = asyncio.Event()
        self.closed = False
        self.snapshots_given = 0
        # Kept by those who read them.
        self._snapshots: WeakValueDictionary[bool, NumberedSnapshot] = WeakValueDictionary()
        self.begin(incarnation)

    def begin(self, incarnation: int) -> None:
        """Start a new incarnation without events: nobody can go on from an earlier one."""
        self.incarnation = incarnation
        self.last = 0
        self.bytes = 0
        self._events: dict[int, Event] = {}
        self._drop_snapshots()
        self._changed.set()

    def record(self, event: Event) -> None:
        """Add what happened next, a large event as several; the oldest ones make room."""
        for piece in in_pieces(event):
            self.last += 1
            self._events[self.last] = piece
            self.bytes += _size(piece)
        while self.bytes > self._max_bytes and len(self._events) > 1:
            self.bytes -= _size(self._events.pop(self._oldest))
            self._drop_snapshots()
        self._changed.set()

    def close(self) -> None:
        """End: no events any more, and nobody waits for one."""
        self.closed = True
        self._changed.set()

    def reaches(self, incarnation: int, number: int) -> bool:
        """Whether all events after ``number`` are there."""
        return incarnation == self.incarnation and self._oldest - 1 <= number <= self.last

    def event(self, number: int) -> Event:
        """Return an event that is there."""
        return self._events[number]

    def snapshot(self, *, with_tokens: bool) -> NumberedSnapshot:
        """Return a snapshot whose number is reached: a new one unless somebody reads one."""
        self.snapshots_given += 1
        snapshot = self._snapshots.get(with_tokens)
        if snapshot is None:
            blocks = self._take_snapshot(with_tokens)
            snapshot = NumberedSnapshot(self.incarnation, self.last, blocks)
            self._snapshots[with_tokens] = snapshot
        return snapshot

    async def wait_beyond(self, incarnation: int, number: int) -> None:
        """Return once the log is not at ``number`` of ``incarnation`` any more, or closed."""
        while (incarnation, number) == (self.incarnation, self.last) and not self.closed:
            # Who waits already has been woken by `set`, whatever becomes of the flag.
            self._changed.clear()
            await self._changed.wait()

    @property
    def _oldest(self) -> int:
        """Number of the oldest event; one more than the last where there is none."""
        return self.last - len(self._events) + 1

    def _drop_snapshots(self) -> None:
        """Drop those that the events no longer go on from."""
        for with_tokens, snapshot in list(self._snapshots.items()):
            if not self.reaches(snapshot.incarnation, snapshot.number):
                del self._snapshots[with_tokens]
                snapshot.blocks.drop()


def _size(event: Event) -> int:
    """About how many bytes of memory an event takes."""
    size = _EVENT_BYTES
    if isinstance(event, BlocksStored):
        size += len(event.token_ids) + len(b"".join(event.extra_keys))
    if isinstance(event, BlocksStored | BlocksRemoved):
        size += _HASH_BYTES * len(event.block_hashes)
    return size
