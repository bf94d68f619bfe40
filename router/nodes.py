"""A node as the router sees it: whether it can be chosen, its load, what it served."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from prefix_cache.client import NodeState
from router.claims.claims import Claims, NoClaims
from router.decayed import DecayedSum
from router.prefill_progress import PrefillProgress
from router.turn import DEFAULT_POOL


class Home(NamedTuple):
    """One life of a node: what the node holds in the next is not what this held."""

    node: str
    incarnation: int


@dataclass(slots=True, eq=False)
class Node:
    """One node.  Load is what was routed there and not reported yet; probes never touch it.

    ``address`` is where its cache node serves gRPC, ``url`` where its engine serves HTTP; one of
    them may be empty.  ``models`` are those that the engine says it serves, empty when unknown.
    """

    name: str
    address: str
    url: str = ""
    pool: str = DEFAULT_POOL
    models: frozenset[str] = frozenset()
    claims: Claims = field(default_factory=NoClaims)
    state: NodeState = NodeState.JOINING
    told_to_drain: bool = False
    """An operator wants it empty: it stays draining whatever its probes say."""
    incarnation: int = 0
    """Which life of the node's claims, from its last good probe; 0: unknown yet."""
    first_incarnation: int = 0
    """The first life that was known: what was written down as life 0 before is of it."""
    losses: int = 0
    """Times all that was believed of its cache turned out to be void."""
    lost_at: float = -math.inf
    """When that was last, in seconds since the epoch."""
    in_flight: int = 0
    """Turns routed there and not reported yet."""
    in_flight_tokens: int = 0
    """Prompt tokens of those turns."""
    queued_prefill: int = 0
    """Tokens not claimed to be cached, of the turns routed there that have not begun to answer."""
    prefill_progress: PrefillProgress = field(default_factory=PrefillProgress)
    """How much of the first of those must be done by now."""
    decoding: int = 0
    """Turns that have begun to answer and are not over."""
    reported_running: int = 0
    """Sequences that the node itself said are live, from whatever router, at its last probe."""
    recent_prefill: DecayedSum = field(default_factory=DecayedSum)
    """Tokens routed there to be prefilled, decayed."""
    turns: int = 0
    """Turns served."""
    prompt_tokens: int = 0
    """Prompt tokens of the turns served."""
    told_tokens: int = 0
    """Prompt tokens of those of whom the engine said how much was cached."""
    cached_tokens: int = 0
    """Prompt tokens that it said were cached."""
    failures: int = 0
    """Times the node failed."""
    lost_tokens: int = 0
    """Committed tokens of the conversations that were pinned there when it failed."""
    _home: Home | None = None

    @property
    def home(self) -> Home:
        """The node's present life: one object, which all that is pinned there shares."""
        if self._home is None or self._home.incarnation != self.incarnation:
            self._home = Home(self.name, self.incarnation)
        return self._home

    def lives(self, incarnation: int) -> bool:
        """Whether a home of this ``incarnation``, on a node of this name, is its present life."""
        return incarnation == self.incarnation or (
            not incarnation and self.incarnation == self.first_incarnation
        )

    def prefill_left(self, now: float) -> float:
        """Tokens to prefill there before a turn that comes now: those queued, less progress."""
        queued = self.queued_prefill
        return queued - self.prefill_progress.done(now) if queued else 0.0
