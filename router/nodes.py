"""A node as the router sees it: whether it can be chosen, its load, what it served."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from prefix_cache.client import NodeState


class Home(NamedTuple):
    """One life of a node: what a restarted node of the same name holds is not what this held."""

    node: str
    incarnation: int


@dataclass(slots=True, eq=False)
class Node:
    """One node.  Load is what was routed there and not reported yet; probes never touch it."""

    name: str
    address: str
    state: NodeState = NodeState.JOINING
    incarnation: int = 0
    """Which life of the node's claims, from its last good probe; 0: none yet."""
    in_flight: int = 0
    """Turns routed there and not reported yet."""
    in_flight_tokens: int = 0
    """Prompt tokens of those turns."""
    turns: int = 0
    """Turns served."""
    prompt_tokens: int = 0
    """Prompt tokens of the turns served."""
    cached_tokens: int = 0
    """Prompt tokens of those that were cached."""
    failures: int = 0
    """Times the node failed."""
    lost_tokens: int = 0
    """Committed tokens of the conversations that were pinned there when it failed."""

    @property
    def home(self) -> Home:
        """The node's present life."""
        return Home(self.name, self.incarnation)
