"""What a router answers, as values, and the messages they travel in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from prefix_cache.client.requests import prompt_to_wire, text, uint32, uint64
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.tokens import Tokens
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
    GONE = router_pb2.NODE_STATE_GONE


@dataclass(frozen=True, slots=True)
class RoutePrompt:
    """The tokens of a turn's prompt, for the nodes' claims to be asked about.

    ``block_size`` is that of the nodes.
    """

    identity: Identity
    tokens: Tokens
    extra_keys: Iterable[ExtraKey] = ()
    block_size: int = 16


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
    url: str = ""
    pool: str = ""
    queued_prefill: int = 0
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RouteCandidate:
    """A node that could take the turn, and what of the prompt it was claimed to hold.

    ``cost`` has one part per term of the explanation; the lowest sum wins.
    """

    node: str
    cached_tokens: int
    is_home: bool
    cost: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RouteLeaving:
    """Where a prompt leaves what the node that is believed to hold most of it holds.

    ``position`` is the first token that is not held; of a node that tells its blocks, the first
    one of the first block that is not.  ``differs``: something else was sent there instead, not
    nothing more; None: of blocks that cannot be known.
    """

    node: str
    position: int
    differs: bool | None


@dataclass(frozen=True, slots=True)
class RouteExplanation:
    """How a turn was or would be decided.  ``left_out`` says why not, by node.

    ``leaves`` is known of a turn that is not sent, with a prompt of which something is held.
    """

    node: str
    reason: RouteReason
    runner_up: str
    prompt_tokens: int
    terms: tuple[str, ...]
    candidates: tuple[RouteCandidate, ...]
    left_out: dict[str, str]
    moved_from: str
    leaves: RouteLeaving | None = None


def route_to_wire(
    conversation: str,
    prompt_tokens: int,
    tenant: str,
    exclude: Sequence[str],
    pool: str,
    model: str,
    prompt: RoutePrompt | None,
) -> router_pb2.RouteRequest:
    """Return the request for a node for one turn."""
    request = router_pb2.RouteRequest(
        tenant=text("tenant", tenant),
        conversation=text("conversation", conversation),
        prompt_tokens=uint32("prompt_tokens", prompt_tokens),
        exclude=[text("exclude", name) for name in exclude],
        pool=text("pool", pool),
        model=text("model", model),
    )
    if prompt is not None:
        block_size = uint32("block_size", prompt.block_size)
        request.prompt.CopyFrom(
            prompt_to_wire(prompt.identity, prompt.tokens, prompt.extra_keys, None, block_size)
        )
    return request


def drain_to_wire(node: str, undo: bool) -> router_pb2.DrainRequest:
    """Return the request to empty a node, or to let it take turns again."""
    return router_pb2.DrainRequest(node=text("node", node), undo=undo)


def explain_to_wire(request_id: str) -> router_pb2.ExplainRouteRequest:
    """Return the request for the decision of a request of the past."""
    return router_pb2.ExplainRouteRequest(request_id=text("request_id", request_id))


def report_to_wire(
    route_id: int, outcome: Outcome, cached_tokens: int | None, committed_tokens: int
) -> router_pb2.ReportRequest:
    """Return the report on one turn."""
    return router_pb2.ReportRequest(
        route_id=uint64("route_id", route_id),
        outcome=router_pb2.Outcome.ValueType(outcome),
        cached_tokens=None if cached_tokens is None else uint32("cached_tokens", cached_tokens),
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


def read_explanation(message: router_pb2.ExplainRouteResponse) -> RouteExplanation:
    """Read the answer to ExplainRoute."""
    return RouteExplanation(
        node=message.node,
        reason=RouteReason(message.reason),
        runner_up=message.runner_up,
        prompt_tokens=message.prompt_tokens,
        terms=tuple(message.terms),
        candidates=tuple(
            RouteCandidate(each.node, each.cached_tokens, each.is_home, tuple(each.cost))
            for each in message.candidates
        ),
        left_out={each.node: each.why for each in message.left_out},
        moved_from=message.moved_from,
        leaves=_read_leaving(message.leaves) if message.HasField("leaves") else None,
    )


def _read_leaving(message: router_pb2.RouteLeaving) -> RouteLeaving:
    differs = message.differs if message.HasField("differs") else None
    return RouteLeaving(message.node, message.position, differs)


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
        url=message.url,
        pool=message.pool,
        queued_prefill=message.queued_prefill,
        models=tuple(message.models),
    )
