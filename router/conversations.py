"""Which node each conversation is at home on: pins, bounded in number and in age."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from router.nodes import Home
from router.turn import ConversationKey


class Pin(NamedTuple):
    """Where a conversation is at home, and how many of its tokens were committed there."""

    home: Home
    committed_tokens: int
    used_at: float
    """When it was written or learned, by this process's clock."""
    written_at: float
    """When a router wrote it, in seconds since the epoch: of two, the later one counts."""
    text_bytes: int = 0
    """Length of their text, which all routers count alike; 0: they were counted themselves."""
    is_learned: bool = False
    """Whether another router wrote it: what was sent home then, this one has not seen."""


@dataclass(slots=True)
class Holdings:
    """What is pinned to one life of a node."""

    conversations: int = 0
    committed_tokens: int = 0


class Conversations:
    """Pins by conversation key.

    At most ``max_pins``: the one unused for longest goes first.  A pin unused for ``ttl_s``
    seconds of ``clock`` is gone.  Every operation takes O(1), amortised.
    """

    def __init__(self, *, max_pins: int, ttl_s: float, clock: Callable[[], float]) -> None:
        self._max_pins = max_pins
        self._ttl_s = ttl_s
        self._clock = clock
        self._pins: OrderedDict[ConversationKey, Pin] = OrderedDict()  # unused for longest first
        self._holdings: dict[Home, Holdings] = {}

    def __len__(self) -> int:
        self._drop_expired()
        return len(self._pins)

    def get(self, key: ConversationKey) -> Pin | None:
        """Return the pin of a conversation, if it has one.  Does not count as use."""
        pin = self._pins.get(key)
        if pin is None or pin.used_at <= self._clock() - self._ttl_s:
            return None
        return pin

    def pin(
        self,
        key: ConversationKey,
        home: Home,
        committed_tokens: int,
        *,
        written_at: float,
        text_bytes: int = 0,
        is_learned: bool = False,
    ) -> Pin:
        """Make ``home`` the conversation's home, with this many tokens committed there."""
        self._drop_expired()
        if key in self._pins:
            self._drop(key)
        elif len(self._pins) == self._max_pins:
            self._drop(next(iter(self._pins)))
        pin = self._pins[key] = Pin(
            *(home, committed_tokens, self._clock()), written_at, text_bytes, is_learned
        )
        held = self._holdings.get(home)
        if held is None:
            held = self._holdings[home] = Holdings()
        held.conversations += 1
        held.committed_tokens += committed_tokens
        return pin

    def pins(self) -> list[tuple[ConversationKey, Pin]]:
        """All pins as they are now, the one unused for longest first."""
        self._drop_expired()
        return list(self._pins.items())

    def holdings(self, home: Home) -> Holdings:
        """Return how many conversations are pinned to ``home``, and their committed tokens."""
        self._drop_expired()
        return replace(self._holdings.get(home, Holdings()))

    def _drop_expired(self) -> None:
        oldest_kept = self._clock() - self._ttl_s
        while self._pins:
            key, pin = next(iter(self._pins.items()))
            if pin.used_at > oldest_kept:
                break
            self._drop(key)

    def _drop(self, key: ConversationKey) -> None:
        pin = self._pins.pop(key)
        held = self._holdings[pin.home]
        held.conversations -= 1
        held.committed_tokens -= pin.committed_tokens
        if not held.conversations:
            del self._holdings[pin.home]
