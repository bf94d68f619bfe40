"""Pins that several routers share.  One router alone needs no directory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from router.conversations import Pin
from router.dispatcher import Dispatcher
from router.turn import ConversationKey


@dataclass(slots=True)
class DirectoryCounts:
    """What went wrong so far."""

    timeouts: int = 0
    """Turns routed from this router's memory because the answer was not there in time."""
    errors: int = 0
    """Commands that failed."""
    dropped_puts: int = 0
    """Pins that were not written because too many waited."""


class Directory(Protocol):
    """Where routers tell each other which conversation is at home where.

    Turns are routed by its pin or by the one in a router's own memory, whichever was written
    later; by the latter alone when the directory does not know, or cannot be asked.
    """

    counts: DirectoryCounts

    @property
    def is_available(self) -> bool:
        """Whether it answered last."""

    async def find_pin(self, key: ConversationKey) -> Pin | None:
        """Return the pin of a conversation; None when it has none, or none is known in time."""

    def put_pin(self, key: ConversationKey, pin: Pin) -> None:
        """Write a pin, soon; returns at once."""


async def follow_pin(
    dispatcher: Dispatcher, directory: Directory | None, conversation: ConversationKey | None
) -> None:
    """Let the dispatcher know what the directory, if there is one, knows of a conversation."""
    if directory is not None and conversation is not None:
        pin = await directory.find_pin(conversation)
        if pin is not None:
            dispatcher.learn_pin(conversation, pin)
