"""RouterService over the dispatcher."""

from __future__ import annotations

from prefix_cache.client import Outcome, RouteReason
from prefix_cache.errors import InvalidArgument
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.v1 import router_pb2, router_pb2_grpc
from prefix_cache.wire import unary, unary_async
from router.decisions import Decisions
from router.directory import Directory, follow_pin
from router.dispatcher import Dispatcher
from router.leaving import where_left
from router.nodes import Node
from router.picker import Decision
from router.status import Status
from router.status.counts import NodeCounts
from router.status.explanations import Explanation, explain
from router.token_prompt import prompt_from_wire
from router.turn import MAX_KEY_CHARACTERS, ConversationKey, Prompt, Turn


class RouterServicer(router_pb2_grpc.RouterServiceServicer):
    """Answers the calls of RouterService; asks the ``directory`` for pins where there is one."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        decisions: Decisions,
        status: Status,
        directory: Directory | None = None,
    ) -> None:
        self._dispatcher = dispatcher
        self._decisions = decisions
        self._status = status
        self._directory = directory

    @unary_async
    async def Route(  # noqa: N802
        self, request: router_pb2.RouteRequest
    ) -> router_pb2.RouteResponse:
        """Choose a node for one turn."""
        turn = self._turn(request)
        await follow_pin(self._dispatcher, self._directory, turn.conversation)
        route = self._dispatcher.route(turn)
        decision = route.decision
        route_id = self._dispatcher.number(route)
        self._decisions.keep(str(route_id), decision)
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
        outcome = _outcome(request)
        route = self._dispatcher.find_route(request.route_id)
        prompt_tokens = route.turn.prompt.num_tokens
        cached_tokens = request.cached_tokens if request.HasField("cached_tokens") else None
        if not prompt_tokens:
            cached_tokens = None  # of a prompt whose length nobody said they say nothing
        elif cached_tokens is not None and cached_tokens > prompt_tokens:
            raise InvalidArgument(
                f"{cached_tokens} cached tokens were reported of a prompt of {prompt_tokens}",
                cached_tokens=cached_tokens,
                prompt_tokens=prompt_tokens,
            )
        if outcome is Outcome.OK:
            self._dispatcher.accepted(route, request.committed_tokens)
            self._dispatcher.served(route, cached_tokens=cached_tokens)
        elif outcome is Outcome.NODE_FAILED:
            self._dispatcher.failed(route, "a turn failed there")
        else:
            self._dispatcher.not_served(route)
        return router_pb2.ReportResponse()

    @unary_async
    async def ListNodes(  # noqa: N802
        self, request: router_pb2.ListNodesRequest
    ) -> router_pb2.ListNodesResponse:
        """Tell state, load and pins of every node."""
        counted = (await self._status.counts()).nodes
        nodes = self._dispatcher.nodes()
        return router_pb2.ListNodesResponse(
            nodes=[self._node_to_wire(node, counted[node.name]) for node in nodes],
            policy=self._dispatcher.default_pool.config.policy,
        )

    @unary
    def Drain(self, request: router_pb2.DrainRequest) -> router_pb2.DrainResponse:  # noqa: N802
        """Make the conversations of a node move away, or let it take turns again."""
        dispatcher = self._dispatcher
        dispatcher.drain(request.node, drain=not request.undo)
        nodes = (node for node in dispatcher.nodes() if node.name == request.node)
        held = sum(dispatcher.holdings(node).conversations for node in nodes)
        return router_pb2.DrainResponse(conversations=held)

    @unary_async
    async def ExplainRoute(  # noqa: N802
        self, request: router_pb2.ExplainRouteRequest
    ) -> router_pb2.ExplainRouteResponse:
        """Tell how a turn was or would be decided."""
        if request.WhichOneof("what") == "turn":
            turn = self._turn(request.turn)
            await follow_pin(self._dispatcher, self._directory, turn.conversation)
            decision = self._dispatcher.decide(turn)
            return _explanation_to_wire(explain(decision), _leaving(decision, turn.prompt))
        return _explanation_to_wire(await self._status.explanation(request.request_id))

    def _turn(self, request: router_pb2.RouteRequest) -> Turn:
        pool = request.pool or self._dispatcher.default_pool.config.name
        key = _conversation(request)
        if key is not None and len(self._dispatcher.pools) > 1:
            # One that goes on in two pools has a home in each.
            key = key._replace(conversation=f"{pool}:{key.conversation}")
        return Turn(key, _prompt(request), pool, request.model, frozenset(request.exclude))

    def _node_to_wire(self, node: Node, counted: NodeCounts) -> router_pb2.Node:
        return router_pb2.Node(
            name=node.name,
            address=node.address,
            state=router_pb2.NodeState.ValueType(node.state),
            in_flight=node.in_flight,
            in_flight_tokens=node.in_flight_tokens,
            conversations=self._dispatcher.holdings(node).conversations,
            turns=counted.turns,
            prompt_tokens=counted.prompt_tokens,
            cached_tokens=counted.cached_tokens,
            failures=counted.failures,
            lost_tokens=counted.lost_tokens,
            url=node.url,
            pool=node.pool,
            queued_prefill=node.queued_prefill,
            models=sorted(node.models),
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


def _prompt(request: router_pb2.RouteRequest) -> Prompt:
    if not request.HasField("prompt"):
        return Prompt(request.prompt_tokens)
    prompt = prompt_from_wire(request.prompt)
    if request.prompt_tokens not in (0, prompt.num_tokens):
        raise InvalidArgument(
            f"prompt_tokens is {request.prompt_tokens}: the prompt has {prompt.num_tokens}",
            prompt_tokens=request.prompt_tokens,
        )
    return prompt


def _outcome(request: router_pb2.ReportRequest) -> Outcome:
    try:
        return Outcome(request.outcome)
    except ValueError:
        expected = ", ".join(f"{outcome.name} ({outcome.value})" for outcome in Outcome)
        raise InvalidArgument(
            f"unknown outcome {request.outcome}: expected one of {expected}",
            outcome=request.outcome,
        ) from None


def _leaving(decision: Decision, prompt: Prompt) -> router_pb2.RouteLeaving | None:
    """Where a prompt of tokens leaves what is held of it; None where none of it is."""
    found = where_left(decision, prompt)
    if found is None:
        return None
    node, left = found
    position = left.position if left.is_token else left.position // TOKEN_BYTES
    if not 0 < position < prompt.num_tokens:
        return None
    return router_pb2.RouteLeaving(node=node, position=position, differs=left.differs)


def _explanation_to_wire(
    explained: Explanation, leaves: router_pb2.RouteLeaving | None = None
) -> router_pb2.ExplainRouteResponse:
    return router_pb2.ExplainRouteResponse(
        node=explained.node,
        reason=router_pb2.RouteReason.ValueType(RouteReason[explained.reason.upper()]),
        runner_up=explained.runner_up or "",
        prompt_tokens=explained.prompt_tokens,
        terms=explained.candidates[0].cost,
        candidates=[
            router_pb2.RouteCandidate(
                node=candidate.node,
                cached_tokens=candidate.cached_tokens,
                is_home=candidate.is_home,
                cost=candidate.cost.values(),
            )
            for candidate in explained.candidates
        ],
        left_out=[
            router_pb2.LeftOutNode(node=each.node, why=each.why) for each in explained.left_out
        ],
        moved_from=explained.moved_from or "",
        leaves=leaves,
    )
