"""Builds a router from its config and runs it."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import grpc
import uvloop

from prefix_cache.serving import Service, serving, until_stopped
from prefix_cache.v1 import router_pb2, router_pb2_grpc
from router.config import RouterConfig
from router.config_file import ConfigFile
from router.decisions import Decisions
from router.directory import Directory
from router.discovery.discovering import discovering
from router.dispatcher import Dispatcher
from router.grpc_api import RouterServicer
from router.http_server import serving_http
from router.metrics import router_registry
from router.prompts import BodyReader
from router.redis_directory import redis_directory
from router.redis_drains import sharing_drains
from router.status import Status
from router.watcher import Watchers
from router.workers.asking import answering
from router.workers.mailbox import Seat
from router.workers.siblings import sharing
from router.workers.supervisor import run_workers

_log = logging.getLogger(__name__)


def run_router(
    config: RouterConfig,
    on_ready: Callable[[list[str]], None],
    file: ConfigFile | None = None,
) -> None:
    """Route until SIGTERM or SIGINT, then let what is under way end.

    ``on_ready`` gets the addresses listened on, the URL of the proxy last, once each node was
    probed; nodes that do not answer do not keep the router from starting.  Changes of the
    ``file`` that the config came from are taken over.  Raises CannotListen.
    """
    if config.workers == 1:
        _run_process(config, file, None, on_ready)
    else:
        run_workers(config, file, _run_process, on_ready)


def _run_process(
    config: RouterConfig,
    file: ConfigFile | None,
    seat: Seat | None,
    on_ready: Callable[[list[str]], None],
) -> None:
    # Pins and accounts are very many small objects that live long and know no cycles: looking
    # through all of them now and then would hold up whatever is routed for 100 ms.
    gc.set_threshold(50_000, 50, 1000)
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # macOS may take less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))

    async def run() -> None:
        if file is None:  # who follows one listens for the signal itself
            nothing = "SIGHUP: there is no config file to be read again"
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _log.warning, nothing)
        async with running(config, file, seat) as addresses:
            await until_stopped(lambda: on_ready(addresses))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if config.http else None) as runner:
        runner.run(run())


@asynccontextmanager
async def running(
    config: RouterConfig, file: ConfigFile | None = None, seat: Seat | None = None
) -> AsyncIterator[list[str]]:
    """Route while the context is open; its value is the addresses listened on.

    With a ``seat`` this is one of several workers.  Raises CannotListen.
    """
    dispatcher = Dispatcher(config)
    decisions = Decisions(max_decisions=config.max_decisions)
    async with AsyncExitStack() as stack:
        directory = None
        if config.redis:
            pins = dispatcher.conversations.pins
            directory = await stack.enter_async_context(redis_directory(config, pins))
            dispatcher.on_pin = directory.put_pin
            await stack.enter_async_context(sharing_drains(config.redis, dispatcher))
        if seat is not None:
            await stack.enter_async_context(sharing(dispatcher, seat))
        watchers = Watchers(dispatcher, config)
        stack.push_async_callback(watchers.close)
        await stack.enter_async_context(discovering(dispatcher, watchers, config, file))
        reader = BodyReader(dispatcher.pools, config.tenant_header) if config.http else None
        registry = router_registry(dispatcher, reader, directory)
        status = Status(dispatcher, decisions, registry, seat)
        if seat is not None:
            await stack.enter_async_context(answering(seat, status.answer))
        addresses = []
        if config.listen:
            service = router_service(dispatcher, decisions, status, directory)
            addresses += await stack.enter_async_context(serving(service, config.listen))
        if reader is not None:
            proxy = serving_http(
                *(dispatcher, reader, decisions, config, status),
                directory=directory,
                reuse_port=seat is not None,
            )
            addresses.append(await stack.enter_async_context(proxy))
        yield addresses


def router_service(
    dispatcher: Dispatcher,
    decisions: Decisions,
    status: Status,
    directory: Directory | None = None,
) -> Service:
    """Return RouterService."""
    servicer = RouterServicer(dispatcher, decisions, status, directory)

    def register(server: grpc.aio.Server) -> None:
        router_pb2_grpc.add_RouterServiceServicer_to_server(servicer, server)

    return Service(register, [router_pb2.DESCRIPTOR.services_by_name["RouterService"].full_name])
