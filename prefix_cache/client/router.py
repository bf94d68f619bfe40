"""Clients of the router."""

from __future__ import annotations

from collections.abc import Sequence

from prefix_cache.client.connection import AsyncConnection, Connection
from prefix_cache.client.routes import (
    NodeStatus,
    Outcome,
    Route,
    RouteExplanation,
    RoutePrompt,
    drain_to_wire,
    explain_to_wire,
    read_explanation,
    read_nodes,
    read_route,
    report_to_wire,
    route_to_wire,
)
from prefix_cache.v1 import router_pb2, router_pb2_grpc


class RouterClient(Connection):
    """A router at ``host:port`` or ``unix:///path``.

    ``timeout_s`` holds for each call.  All calls may raise ``Unavailable`` and
    ``DeadlineExceeded``.
    """

    def __init__(self, address: str, *, timeout_s: float = 10.0) -> None:
        super().__init__(address, timeout_s)
        self._stub = router_pb2_grpc.RouterServiceStub(self.channel)

    def route(
        self,
        conversation: str,
        prompt_tokens: int = 0,
        *,
        tenant: str = "",
        exclude: Sequence[str] = (),
        pool: str = "",
        model: str = "",
        prompt: RoutePrompt | None = None,
    ) -> Route:
        """Choose a node for one turn, not one of ``exclude``.

        With the ``prompt`` what the nodes hold of it counts, and ``prompt_tokens`` need not be
        said; without it the turn is routed by pin and load.  Raises ``NoNodeAvailable``.
        """
        request = route_to_wire(conversation, prompt_tokens, tenant, exclude, pool, model, prompt)
        return read_route(self.call(self._stub.Route, request))

    def report(
        self,
        route_id: int,
        outcome: Outcome,
        *,
        cached_tokens: int | None = None,
        committed_tokens: int = 0,
    ) -> None:
        """Say how a routed turn went, and how much of its prompt was cached where that is known.

        Raises ``UnknownRoute``.
        """
        request = report_to_wire(route_id, outcome, cached_tokens, committed_tokens)
        self.call(self._stub.Report, request)

    def list_nodes(self) -> tuple[str, list[NodeStatus]]:
        """Return the policy in force, and the nodes in the order of the configuration."""
        return read_nodes(self.call(self._stub.ListNodes, router_pb2.ListNodesRequest()))

    def drain(self, node: str, *, undo: bool = False) -> int:
        """Make a node's conversations move away at their next turn, or end that with ``undo``.

        Returns how many are pinned there now.  Raises ``InvalidArgument`` for an unknown node.
        """
        request = drain_to_wire(node, undo)
        return self.call(self._stub.Drain, request).conversations

    def explain(
        self,
        conversation: str,
        prompt_tokens: int = 0,
        *,
        tenant: str = "",
        exclude: Sequence[str] = (),
        pool: str = "",
        model: str = "",
        prompt: RoutePrompt | None = None,
    ) -> RouteExplanation:
        """Tell how ``route`` would decide now; counts nothing.  Raises as ``route`` does."""
        turn = route_to_wire(conversation, prompt_tokens, tenant, exclude, pool, model, prompt)
        request = router_pb2.ExplainRouteRequest(turn=turn)
        return read_explanation(self.call(self._stub.ExplainRoute, request))

    def explain_request(self, request_id: str) -> RouteExplanation:
        """Tell how a request of the proxy was decided, by its ``x-request-id``.

        Raises ``UnknownRoute`` for one that is not remembered.
        """
        request = explain_to_wire(request_id)
        return read_explanation(self.call(self._stub.ExplainRoute, request))


class AsyncRouterClient(AsyncConnection):
    """A router at ``host:port`` or ``unix:///path``, for one event loop.

    ``timeout_s`` holds for each call.  All calls may raise ``Unavailable`` and
    ``DeadlineExceeded``.
    """

    def __init__(self, address: str, *, timeout_s: float = 10.0) -> None:
        super().__init__(address, timeout_s)
        self._stub = router_pb2_grpc.RouterServiceStub(self.channel)

    async def route(
        self,
        conversation: str,
        prompt_tokens: int = 0,
        *,
        tenant: str = "",
        exclude: Sequence[str] = (),
        pool: str = "",
        model: str = "",
        prompt: RoutePrompt | None = None,
    ) -> Route:
        """Choose a node for one turn, not one of ``exclude``.

        With the ``prompt`` what the nodes hold of it counts, and ``prompt_tokens`` need not be
        said; without it the turn is routed by pin and load.  Raises ``NoNodeAvailable``.
        """
        request = route_to_wire(conversation, prompt_tokens, tenant, exclude, pool, model, prompt)
        return read_route(await self.call(self._stub.Route, request))

    async def report(
        self,
        route_id: int,
        outcome: Outcome,
        *,
        cached_tokens: int | None = None,
        committed_tokens: int = 0,
    ) -> None:
        """Say how a routed turn went, and how much of its prompt was cached where that is known.

        Raises ``UnknownRoute``.
        """
        request = report_to_wire(route_id, outcome, cached_tokens, committed_tokens)
        await self.call(self._stub.Report, request)

    async def list_nodes(self) -> tuple[str, list[NodeStatus]]:
        """Return the policy in force, and the nodes in the order of the configuration."""
        return read_nodes(await self.call(self._stub.ListNodes, router_pb2.ListNodesRequest()))

    async def drain(self, node: str, *, undo: bool = False) -> int:
        """Make a node's conversations move away at their next turn, or end that with ``undo``.

        Returns how many are pinned there now.  Raises ``InvalidArgument`` for an unknown node.
        """
        request = drain_to_wire(node, undo)
        return (await self.call(self._stub.Drain, request)).conversations

    async def explain(
        self,
        conversation: str,
        prompt_tokens: int = 0,
        *,
        tenant: str = "",
        exclude: Sequence[str] = (),
        pool: str = "",
        model: str = "",
        prompt: RoutePrompt | None = None,
    ) -> RouteExplanation:
        """Tell how ``route`` would decide now; counts nothing.  Raises as ``route`` does."""
        turn = route_to_wire(conversation, prompt_tokens, tenant, exclude, pool, model, prompt)
        request = router_pb2.ExplainRouteRequest(turn=turn)
        return read_explanation(await self.call(self._stub.ExplainRoute, request))

    async def explain_request(self, request_id: str) -> RouteExplanation:
        """Tell how a request of the proxy was decided, by its ``x-request-id``.

        Raises ``UnknownRoute`` for one that is not remembered.
        """
        request = explain_to_wire(request_id)
        return read_explanation(await self.call(self._stub.ExplainRoute, request))
