"""Builds a router from its config and runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import grpc

from prefix_cache.serving import Service, serve
from prefix_cache.v1 import router_pb2, router_pb2_grpc
from router.config import RouterConfig
from router.dispatcher import Dispatcher
from router.grpc_api import RouterServicer
from router.watcher import watching


def run_router(config: RouterConfig, on_ready: Callable[[list[str]], None]) -> None:
    """Route until SIGTERM or SIGINT.

    ``on_ready`` gets the addresses listened on, once each node was probed; nodes that do not
    answer do not keep the router from starting.  Raises CannotListen.
    """
    asyncio.run(_run(config, on_ready))


async def _run(config: RouterConfig, on_ready: Callable[[list[str]], None]) -> None:
    dispatcher = Dispatcher(config)
    async with watching(dispatcher, config):
        await serve(router_service(dispatcher), config.listen, on_ready=on_ready)


def router_service(dispatcher: Dispatcher) -> Service:
    """Return what a router serves."""
    servicer = RouterServicer(dispatcher)

    def register(server: grpc.aio.Server) -> None:
        router_pb2_grpc.add_RouterServiceServicer_to_server(servicer, server)

    return Service(register, [router_pb2.DESCRIPTOR.services_by_name["RouterService"].full_name])
