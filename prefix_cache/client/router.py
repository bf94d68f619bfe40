"""Clients of the router."""

from __future__ import annotations

from collections.abc import Sequence

from prefix_cache.client.connection import AsyncConnection, Connection
from prefix_cache.client.routes import (
    NodeStatus,
    Outcome,
    Route,
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
        prompt_tokens: int,
        *,
        tenant: str = "",
        exclude: Sequence[str] = (),
    ) -> Route:
        """Choose a node for one turn, not one of ``exclude``.  Raises ``NoNodeAvailable``."""
        request = route_to_wire(conversation, prompt_tokens, tenant, exclude)
        return read_route(self.call(self._stub.Route, request))

    def report(
        self,
        route_id: int,
        outcome: Outcome,
        *,
        cached_tokens: int = 0,
        committed_tokens: int = 0,
    ) -> None:
        """Say how a routed turn went.  Raises ``UnknownRoute``."""
        request = report_to_wire(route_id, outcome, cached_tokens, committed_tokens)
        self.call(self._stub.Report, request)

    def list_nodes(self) -> tuple[str, list[NodeStatus]]:
        """Return the policy in force, and the nodes in the order of the configuration."""
        return read_nodes(self.call(self._stub.ListNodes, router_pb2.ListNodesRequest()))


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
        prompt_tokens: int,
        *,
        tenant: str = "",
        exclude: Sequence[str] = (),
    ) -> Route:
        """Choose a node for one turn, not one of ``exclude``.  Raises ``NoNodeAvailable``."""
        request = route_to_wire(conversation, prompt_tokens, tenant, exclude)
        return read_route(await self.call(self._stub.Route, request))

    async def report(
        self,
        route_id: int,
        outcome: Outcome,
        *,
        cached_tokens: int = 0,
        committed_tokens: int = 0,
    ) -> None:
        """Say how a routed turn went.  Raises ``UnknownRoute``."""
        request = report_to_wire(route_id, outcome, cached_tokens, committed_tokens)
        await self.call(self._stub.Report, request)

    async def list_nodes(self) -> tuple[str, list[NodeStatus]]:
        """Return the policy in force, and the nodes in the order of the configuration."""
        return read_nodes(await self.call(self._stub.ListNodes, router_pb2.ListNodesRequest()))
