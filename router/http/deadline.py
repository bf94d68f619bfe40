"""One moving deadline per connection, for the price of reading the clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Deadline:
    """Calls ``on_expiry`` once the time last set has come, unless it was cleared before.

    A deadline that moves on leaves the loop's timer where it is; the timer looks again when it
    fires.  So a connection that serves many requests rarely touches the timers of the loop.
    """

    __slots__ = ("_at", "_loop", "_on_expiry", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, on_expiry: Callable[[], None]) -> None:
        self._loop = loop
        self._on_expiry = on_expiry
        self._at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_set(self) -> bool:
        """Whether it will expire."""
        return self._at is not None

    def set(self, seconds: float) -> None:
        """Expire in ``seconds`` from now, and no longer when it was set to before."""
        at = self._at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer.when() <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(at, self._look)

    def clear(self) -> None:
        """Do not expire."""
        self._at = None

    def close(self) -> None:
        """Never expire again; nothing is left in the loop."""
        self._at = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if self._at is None:
            return
        if self._loop.time() < self._at:
            self._timer = self._loop.call_at(self._at, self._look)
            return
        self._at = None
        self._on_expiry()
