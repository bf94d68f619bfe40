"""How far a node is with the prefill that it works on now, as well as can be known from outside."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from router.decayed import DecayedSum


@dataclass(slots=True)
class PrefillProgress:
    """Turns that wait for their prefill at one node, taken to be served in the order they came.

    Nobody says how fast a node prefills.  It is learned from when turns begin to answer: tokens
    done per second in which any were waiting, the recent ones counting most.
    """

    tokens_per_second: float = 0.0
    """0 until the first turn has begun to answer."""
    _waiting: dict[Hashable, int] = field(default_factory=dict)
    _since: float = 0.0
    _tokens: DecayedSum = field(default_factory=DecayedSum)
    _seconds: DecayedSum = field(default_factory=DecayedSum)

    def waits(self, turn: Hashable, tokens: int, now: float) -> None:
        """Take note of a turn with ``tokens`` to prefill, sent at the time ``now`` in seconds."""
        if not self._waiting:
            self._since = now
        self._waiting[turn] = tokens

    def begins(self, turn: Hashable, now: float) -> None:
        """Take note that a turn's prefill is done: the next one's begins."""
        tokens = self._tokens.add(self._waiting.pop(turn), now)
        seconds = self._seconds.add(now - self._since, now)
        self._since = now
        if seconds:
            self.tokens_per_second = tokens / seconds

    def leaves(self, turn: Hashable) -> None:
        """Take note that a turn will not be prefilled."""
        del self._waiting[turn]

    def done(self, now: float) -> float:
        """Tokens that must be done of the turn that came first, at most all of them."""
        for tokens in self._waiting.values():
            return min(tokens, self.tokens_per_second * (now - self._since))
        return 0.0
