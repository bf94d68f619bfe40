"""Runs a node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from grpc import aio

from prefix_cache.index import Stats
from prefix_cache.metrics_http import serving_metrics
from prefix_cache.node.config import NodeConfig
from prefix_cache.node.metrics import node_registry
from prefix_cache.node.node import Node
from prefix_cache.node.request_timer import RequestTimer
from prefix_cache.node.servicer import NodeServicer
from prefix_cache.serving import Service, serve
from prefix_cache.v1 import node_pb2, node_pb2_grpc


def run_node(config: NodeConfig, on_ready: Callable[[list[str]], None]) -> Stats:
    """Serve until SIGTERM or SIGINT, drain, and return the stats at the end.

    ``on_ready`` gets the addresses listened on, and the URL of the metrics.  Raises
    ``CannotListen``, or ``InvalidArgument`` for a setting that makes no sense.
    """
    return asyncio.run(_run(config, on_ready))


async def _run(config: NodeConfig, on_ready: Callable[[list[str]], None]) -> Stats:
    node = Node(config)
    async with AsyncExitStack() as stack:
        urls = []
        if config.metrics:
            metrics = serving_metrics(node_registry(node), config.metrics)
            urls.append(await stack.enter_async_context(metrics))
        await serve(
            node_service(node),
            config.listen,
            on_ready=lambda addresses: on_ready(addresses + urls),
            max_message_bytes=config.max_message_bytes,
            grace_s=config.drain_grace_s,
        )
    return node.cache.stats()


def node_service(node: Node) -> Service:
    """Return what a node serves."""
    servicer = NodeServicer(node)

    def register(server: aio.Server) -> None:
        node_pb2_grpc.add_NodeServiceServicer_to_server(servicer, server)

    name = node_pb2.DESCRIPTOR.services_by_name["NodeService"].full_name
    timer = RequestTimer(node.measurements.request_seconds)
    return Service(register, [name], node.drain, [timer])
