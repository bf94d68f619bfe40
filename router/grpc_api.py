"""RouterService over the dispatcher."""

from __future__ import annotations

from prefix_cache.client import Outcome
from prefix_cache.errors import InvalidArgument
from prefix_cache.v1 import router_pb2, router_pb2_grpc
from prefix_cache.wire import unary
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.turn import ConversationKey

# Pins are bounded in number; this bounds what each can take.
MAX_KEY_CHARACTERS = 1024


class RouterServicer(router_pb2_grpc.RouterServiceServicer):
    """Answers the calls of RouterService."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    @unary
    def Route(self, request: router_pb2.RouteRequest) -> router_pb2.RouteResponse:  # noqa: N802
        """Choose a node for one turn."""
        route_id, decision = self._dispatcher.route(
            _conversation(request), request.prompt_tokens, request.exclude
        )
        return router_pb2.RouteResponse(
            route_id=route_id,
            node=decision.node.name,
            address=decision.node.address,
            reason=router_pb2.RouteReason.ValueType(decision.reason),
            moved_from=decision.moved_from,
            lost_tokens=decision.lost_tokens,
        )

    @unary
    def Report(self, request: router_pb2.ReportRequest) -> router_pb2.ReportResponse:  # noqa: N802
        """Take the report of one turn."""
        self._dispatcher.report(
            request.route_id,
            _outcome(request),
            cached_tokens=request.cached_tokens,
            committed_tokens=request.committed_tokens,
        )
        return router_pb2.ReportResponse()

    @unary
    def ListNodes(  # noqa: N802
        self, request: router_pb2.ListNodesRequest
    ) -> router_pb2.ListNodesResponse:
        """Tell state, load and pins of every node."""
        return router_pb2.ListNodesResponse(
            nodes=[self._node_to_wire(node) for node in self._dispatcher.list_nodes()],
            policy=self._dispatcher.policy_name,
        )

    def _node_to_wire(self, node: Node) -> router_pb2.Node:
        return router_pb2.Node(
            name=node.name,
            address=node.address,
            state=router_pb2.NodeState.ValueType(node.state),
            in_flight=node.in_flight,
            in_flight_tokens=node.in_flight_tokens,
            conversations=self._dispatcher.conversations.holdings(node.home).conversations,
            turns=node.turns,
            prompt_tokens=node.prompt_tokens,
            cached_tokens=node.cached_tokens,
            failures=node.failures,
            lost_tokens=node.lost_tokens,
        )


def _conversation(request: router_pb2.RouteRequest) -> ConversationKey | None:
    if not request.conversation:
        return None
    key = ConversationKey(request.tenant, request.conversation)
    length = len(key.tenant) + len(key.conversation)
    if length > MAX_KEY_CHARACTERS:
        raise InvalidArgument(
            f"tenant and conversation have {length} characters: expected at most "
            f"{MAX_KEY_CHARACTERS}",
            length=length,
        )
    return key


def _outcome(request: router_pb2.ReportRequest) -> Outcome:
    try:
        return Outcome(request.outcome)
    except ValueError:
        expected = ", ".join(f"{outcome.name} ({outcome.value})" for outcome in Outcome)
        raise InvalidArgument(
            f"unknown outcome {request.outcome}: expected one of {expected}",
            outcome=request.outcome,
        ) from None
