"""Sends what many connections have to say with few wake-ups of those who read it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

# In bytes, of all connections together.  The transport of a client that does not read has to know
# of what waits, or does not say that it is too much before more is read for it.
_WAITS_AT_MOST = 65_536


class Outbox:
    """Of what is sent in one turn of ``loop`` the first goes at once, the rest together at its end.

    To wake a process that sleeps in the kernel costs more than to send: one that finds the next
    message when it is done with the last does not go to sleep.  So a router with one request
    is as quick as it can be, and one with many saves a third of its work.  Only little waits.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._has_sent = False
        """In the present turn of the loop."""
        self._waiting: deque[tuple[asyncio.WriteTransport, Sequence[bytes]]] = deque()
        self._bytes_waiting = 0

    def put(self, transport: asyncio.WriteTransport, pieces: Sequence[bytes]) -> None:
        """Send pieces within this turn of the loop, unless ``transport`` closes before its end."""
        if self._has_sent:
            self._waiting.append((transport, pieces))
            self._bytes_waiting += sum(map(len, pieces))
            if self._bytes_waiting > _WAITS_AT_MOST:
                self.flush()
        else:
            self._has_sent = True
            self._loop.call_soon(self._end_turn)
            transport.writelines(pieces)

    def flush(self) -> None:
        """Send all that waits, for who is about to close."""
        while self._waiting:
            transport, pieces = self._waiting.popleft()
            if not transport.is_closing():
                transport.writelines(pieces)
        self._bytes_waiting = 0

    def _end_turn(self) -> None:
        self.flush()
        self._has_sent = False
