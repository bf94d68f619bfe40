"""Events of one call, told at its end, when the cache is in order again."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.events import Event

log = logging.getLogger(__name__)


class Outbox:
    """Gathers the events of a call.  ``wanted`` is false where nobody listens."""

    __slots__ = ("_events", "_on_event")

    def __init__(self, on_event: Callable[[Event], object] | None) -> None:
        if on_event is not None and not callable(on_event):
            raise InvalidArgument(f"on_event is {on_event!r}, expected a function")
        self._on_event = on_event
        self._events: list[Event] = []

    @property
    def wanted(self) -> bool:
        """Whether it is worth making events."""
        return self._on_event is not None

    def put(self, event: Event) -> None:
        """Add an event of the running call."""
        self._events.append(event)

    def deliver(self) -> None:
        """Call the listener with each event; what it raises is logged, the change stands."""
        while self._on_event is not None and self._events:
            event = self._events.pop(0)
            try:
                self._on_event(event)
            except Exception:
                log.exception("on_event raised on %s", type(event).__name__)
