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
from prefix_cache.registry import Announcement, announcing
from prefix_cache.serving import Service, serving, until_stopped
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
        addresses = await stack.enter_async_context(
            serving(
                node_service(node),
                config.listen,
                max_message_bytes=config.max_message_bytes,
                grace_s=config.drain_grace_s,
            )
        )
        if config.announce:
            address = config.advertise or addresses[0]
            announced = announcing(config.announce, lambda: announcement_of(node, address))
            await stack.enter_async_context(announced)
        await until_stopped(lambda: on_ready(addresses + urls))
    return node.cache.stats()


def announcement_of(node: Node, address: str) -> Announcement:
    """Return what the node, which is reached at ``address``, says of itself in the registry."""
    config = node.config
    return Announcement(
        name=config.name,
        pool=config.pool,
        address=address,
        url=config.engine_url,
        incarnation=node.incarnation,
        model=config.model,
        block_size=config.block_size,
    )


def node_service(node: Node) -> Service:
    """Return what a node serves."""
    servicer = NodeServicer(node)

    def register(server: aio.Server) -> None:
        node_pb2_grpc.add_NodeServiceServicer_to_server(servicer, server)

    name = node_pb2.DESCRIPTOR.services_by_name["NodeService"].full_name
    timer = RequestTimer(node.measurements.request_seconds)
    return Service(register, [name], node.drain, [timer])
