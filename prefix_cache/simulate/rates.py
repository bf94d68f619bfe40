"""How many requests a second a server sustains."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache.errors import InvalidArgument
from prefix_cache.simulate.outcome import Outcome

LATENCY_BOUND_S = 0.2
"""Seconds per token of an answer: five tokens a second, about as fast as people read."""

_LOADS = (0.3, 0.6, 0.8, 1.0, 1.2)  # of what the server can do at most
_PRECISION = 0.02  # of the same


@dataclass(frozen=True, slots=True)
class Sweep:
    """Outcomes by rate in requests a second, in order, and the ``highest`` that is sustained."""

    outcomes: dict[float, Outcome]
    highest: float

    @property
    def at_highest(self) -> Outcome:
        """What came of the highest rate."""
        return self.outcomes[self.highest]


def sweep(run: Callable[[float], Outcome], bound_s: float = LATENCY_BOUND_S) -> Sweep:
    """Find the highest rate at which the mean normalised latency is at most ``bound_s``.

    All requests at once show what the server can do at most.  No higher rate is sustained, however
    late a load of some length shows it; below, the highest is found by bisection.  Raises
    InvalidArgument where even a server that is nearly idle is slower.
    """
    most = run(math.inf).requests_per_s
    outcomes = {most * load: run(most * load) for load in _LOADS}
    kept = {rate for rate, outcome in outcomes.items() if outcome.normalised_latency_s <= bound_s}
    low = max((rate for rate in kept if rate <= most), default=0.0)
    high = min(rate for rate in (*outcomes, math.inf) if rate > low)
    while low < most and high - low > _PRECISION * most:
        rate = (low + high) / 2
        outcomes[rate] = run(rate)
        if outcomes[rate].normalised_latency_s > bound_s:
            high = rate
        else:
            low = rate
    if not low:
        raise InvalidArgument(
            f"a latency of {bound_s:g} s per token cannot be had: at {high:.3g} requests/s it is "
            f"{outcomes[high].normalised_latency_s:.3g} s",
            bound_s=bound_s,
        )
    return Sweep(dict(sorted(outcomes.items())), low)
