"""What happens to running requests when memory runs out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from prefix_cache.simulate.running import Running

How = Literal["recompute", "swap"]
Victim = Literal["newest", "largest"]


@dataclass(frozen=True, slots=True)
class Preemption:
    """``victim`` goes first, and gets its KV back by computing it again or from the host."""

    how: How = "recompute"
    victim: Victim = "newest"

    def choose(self, running: Sequence[Running]) -> Running:
        """Return who is to go, of requests in the order of their arrival."""
        if self.victim == "newest":
            return running[-1]
        return max(running, key=lambda one: one.request.width * one.context_tokens)


RECOMPUTE_NEWEST = Preemption()
