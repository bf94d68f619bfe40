"""Pins that several routers share.  One router alone needs no directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from router.conversations import Pin
from router.turn import ConversationKey


@dataclass(slots=True)
class DirectoryCounts:
    """What went wrong so far."""

    timeouts: int = 0
    """Turns routed from this router's memory because the answer was not there in time."""
    errors: int = 0
    """Commands that failed."""
    dropped_puts: int = 0
    """Pins that were not written."""


class Directory(Protocol):
    """Where routers tell each other which conversation is at home where.

    Its pin is later than the one in a router's own memory, which is what turns are routed by when
    the directory does not know, or cannot be asked.
    """

    counts: DirectoryCounts

    @property
    def is_available(self) -> bool:
        """Whether it answered last."""

    async def find_pin(self, key: ConversationKey) -> Pin | None:
        """Return the pin of a conversation; None when it has none, or none is known in time."""

    def put_pin(self, key: ConversationKey, pin: Pin) -> None:
        """Write a pin, soon; returns at once."""
