"""What a router answers, as values, and the messages they travel in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from prefix_cache.client.requests import text, uint32, uint64
from prefix_cache.v1 import router_pb2


class RouteReason(IntEnum):
    """Why a node was chosen."""

    PINNED = router_pb2.ROUTE_REASON_PINNED
    NEW = router_pb2.ROUTE_REASON_NEW
    MOVED = router_pb2.ROUTE_REASON_MOVED


class Outcome(IntEnum):
    """How a routed turn went."""

    OK = router_pb2.OUTCOME_OK
    NODE_FAILED = router_pb2.OUTCOME_NODE_FAILED
    NOT_SERVED = router_pb2.OUTCOME_NOT_SERVED


class NodeState(IntEnum):
    """Whether a node can be chosen."""

    JOINING = router_pb2.NODE_STATE_JOINING
    READY = router_pb2.NODE_STATE_READY
    FAILED = router_pb2.NODE_STATE_FAILED
    DRAINING = router_pb2.NODE_STATE_DRAINING


@dataclass(frozen=True, slots=True)
class Route:
    """Where one turn goes: to ``node`` at ``address``.  ``route_id`` names it in the report.

    When it moved, ``moved_from`` is the home left behind and ``lost_tokens`` the tokens of the
    conversation that were committed there.
    """

    route_id: int
    node: str
    address: str
    reason: RouteReason
    moved_from: str
    lost_tokens: int


@dataclass(frozen=True, slots=True)
class NodeStatus:
    """One node as the router sees it; counts are turns and tokens since the router started."""

    name: str
    address: str
    state: NodeState
    in_flight: int
    in_flight_tokens: int
    conversations: int
    turns: int
    prompt_tokens: int
    cached_tokens: int
    failures: int
    lost_tokens: int


def route_to_wire(
    conversation: str, prompt_tokens: int, tenant: str, exclude: Sequence[str]
) -> router_pb2.RouteRequest:
    """Return the request for a node for one turn."""
    return router_pb2.RouteRequest(
        tenant=text("tenant", tenant),
        conversation=text("conversation", conversation),
        prompt_tokens=uint32("prompt_tokens", prompt_tokens),
        exclude=[text("exclude", name) for name in exclude],
    )


def report_to_wire(
    route_id: int, outcome: Outcome, cached_tokens: int, committed_tokens: int
) -> router_pb2.ReportRequest:
    """Return the report on one turn."""
    return router_pb2.ReportRequest(
        route_id=uint64("route_id", route_id),
        outcome=router_pb2.Outcome.ValueType(outcome),
        cached_tokens=uint32("cached_tokens", cached_tokens),
        committed_tokens=uint32("committed_tokens", committed_tokens),
    )


def read_route(message: router_pb2.RouteResponse) -> Route:
    """Read the answer to Route."""
    return Route(
        route_id=message.route_id,
        node=message.node,
        address=message.address,
        reason=RouteReason(message.reason),
        moved_from=message.moved_from,
        lost_tokens=message.lost_tokens,
    )


def read_nodes(message: router_pb2.ListNodesResponse) -> tuple[str, list[NodeStatus]]:
    """Read the answer to ListNodes: the policy in force and the nodes."""
    return message.policy, [_read_node(node) for node in message.nodes]


def _read_node(message: router_pb2.Node) -> NodeStatus:
    return NodeStatus(
        name=message.name,
        address=message.address,
        state=NodeState(message.state),
        in_flight=message.in_flight,
        in_flight_tokens=message.in_flight_tokens,
        conversations=message.conversations,
        turns=message.turns,
        prompt_tokens=message.prompt_tokens,
        cached_tokens=message.cached_tokens,
        failures=message.failures,
        lost_tokens=message.lost_tokens,
    )
