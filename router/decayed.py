"""A sum that forgets."""

from __future__ import annotations

import math
from dataclasses import dataclass

DECAY_S = 600.0
"""After this time 1/e of an amount is left."""


@dataclass(slots=True)
class DecayedSum:
    """A sum of amounts, each of which decays with ``DECAY_S``."""

    _amount: float = 0.0
    _at: float = 0.0

    def add(self, amount: float, now: float) -> float:
        """Add ``amount`` at the time ``now`` in seconds, which never goes back; return the sum."""
        total = self._amount = self._amount * math.exp((self._at - now) / DECAY_S) + amount
        self._at = now
        return total

    def value(self, now: float) -> float:
        """What is left at the time ``now``."""
        return self._amount * math.exp((self._at - now) / DECAY_S)
