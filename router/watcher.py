"""Probes the nodes: who answers, who drains, and who lives another life than before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpc_health.v1 import health_pb2, health_pb2_grpc

from prefix_cache.client import AsyncNodeClient, NodeState
from prefix_cache.errors import PrefixCacheError
from prefix_cache.v1 import node_pb2
from router.config import RouterConfig
from router.dispatcher import Dispatcher
from router.nodes import Node

_NODE_SERVICE = node_pb2.DESCRIPTOR.services_by_name["NodeService"].full_name

# A failed node is probed ever more rarely, up to this many probe intervals apart.
_MAX_BACKOFF = 16


@asynccontextmanager
async def watching(dispatcher: Dispatcher, config: RouterConfig) -> AsyncIterator[None]:
    """Probe every node while the context is open; on entry each was probed once."""
    watchers = [_Watcher(node, dispatcher, config) for node in dispatcher.list_nodes()]
    await asyncio.gather(*(watcher.probe() for watcher in watchers))
    tasks = [asyncio.create_task(watcher.run()) for watcher in watchers]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(watcher.close() for watcher in watchers))


class _Watcher:
    """Follows one node."""

    def __init__(self, node: Node, dispatcher: Dispatcher, config: RouterConfig) -> None:
        self._node = node
        self._dispatcher = dispatcher
        self._interval_s = config.probe_interval_s
        self._client = AsyncNodeClient(node.address, timeout_s=config.probe_timeout_s)
        self._health = health_pb2_grpc.HealthStub(self._client.channel)

    async def run(self) -> None:
        """Probe again and again."""
        backoff = 1
        while True:
            await asyncio.sleep(self._interval_s * backoff)
            await self.probe()
            failed = self._node.state is NodeState.FAILED
            backoff = min(2 * backoff, _MAX_BACKOFF) if failed else 1

    async def probe(self) -> None:
        """Ask the node once and tell the dispatcher what it answered."""
        try:
            health = await self._client.call(
                self._health.Check, health_pb2.HealthCheckRequest(service=_NODE_SERVICE)
            )
            if health.status != health_pb2.HealthCheckResponse.SERVING:
                self._dispatcher.node_draining(self._node)
                return
            # Health cannot tell a restarted node from the one before.
            info = await self._client.info()
        except PrefixCacheError as error:
            self._dispatcher.node_failed(self._node, str(error))
        else:
            self._dispatcher.node_answered(self._node, info.incarnation)

    async def close(self) -> None:
        """Close the channel."""
        await self._client.close()
