"""Filter, choose, explain: one turn to one node.  Pure; whoever asks twice gets one answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import NoNodeAvailable
from router.conversations import Pin
from router.nodes import Node
from router.policies import Policy
from router.turn import Turn


@dataclass(frozen=True, slots=True)
class Decision:
    """The node chosen, and why.

    PINNED: it is the conversation's home.  NEW: the conversation has none yet.  MOVED: the home
    cannot take the turn, lost the conversation, or the policy left it.

    When moved, ``moved_from`` names the home left behind and ``lost_tokens`` counts the tokens
    committed there, which may be prefilled again.  A home that lost its KV in a restart can
    be chosen anew: then both names are equal.
    """

    node: Node
    reason: RouteReason
    moved_from: str = ""
    lost_tokens: int = 0


def pick(nodes: Iterable[Node], turn: Turn, pin: Pin | None, policy: Policy) -> Decision:
    """Choose a node for ``turn``, whose conversation has ``pin``.  Raises NoNodeAvailable."""
    nodes = tuple(nodes)
    candidates = [
        node for node in nodes if node.state is NodeState.READY and node.name not in turn.exclude
    ]
    if not candidates:
        raise _no_node_available(nodes, turn)
    home = None
    if pin is not None:
        home = next((node for node in candidates if node.home == pin.home), None)
    node = policy.choose(candidates, turn, home)
    if pin is None:
        return Decision(node, RouteReason.NEW)
    if node is home:
        return Decision(node, RouteReason.PINNED)
    return Decision(node, RouteReason.MOVED, pin.home.node, pin.committed_tokens)


def _no_node_available(nodes: Iterable[Node], turn: Turn) -> NoNodeAvailable:
    states = ", ".join(
        f"{node.name} is excluded"
        if node.state is NodeState.READY
        else f"{node.name} is {node.state.name}"
        for node in nodes
    )
    return NoNodeAvailable(f"no node can take the turn: {states}", nodes=states)
