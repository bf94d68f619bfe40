"""Runs a gRPC server, the same way for node and router.

Standard health service, reflection, and a drain that lets work end before the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from prefix_cache.listening import bind
from prefix_cache.wire import DEFAULT_MAX_MESSAGE_BYTES, RefuseUndecodable, message_options

# What still runs when the drain is over: answers on their way, idle streams, health watchers.
_FLUSH_S = 0.5

_OPTIONS = [
    # A second server on the same port is an error, not a sharer of its connections.
    ("grpc.so_reuseport", 0),
    # A peer whose host vanished is noticed within 90 s.  A stream may be silent for any time, and
    # a peer frozen for up to a minute keeps its stream.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.ping_timeout_ms", 60_000),  # of late not keepalive_timeout_ms
    # Clients with a keepalive of their own are not cut off for it.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]

_log = logging.getLogger(__name__)


async def _no_work() -> None:
    """Drain nothing."""


@dataclass(frozen=True)
class Service:
    """What is served.

    ``register`` adds the servicers to the server, ``interceptors`` stand before them.  ``names``
    are the full names of the services, for health and reflection.  ``drain`` is called once the
    server is to end and returns when the work that should end first has ended.
    """

    register: Callable[[aio.Server], None]
    names: Sequence[str]
    drain: Callable[[], Awaitable[None]] = _no_work
    interceptors: Sequence[aio.ServerInterceptor] = ()


@contextlib.asynccontextmanager
async def serving(
    service: Service,
    listen: Sequence[str],
    *,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    grace_s: float = 30.0,
) -> AsyncIterator[list[str]]:
    """Serve while the context is open; its value is the addresses listened on.

    ``listen`` holds ``host:port`` (port 0: a free one) and ``unix:///path`` addresses; the server
    is insecure.  Raises ``CannotListen``.  Leaving drains: health says NOT_SERVING, the
    service's ``drain`` has ``grace_s`` seconds to return, then the server stops.
    """
    server = aio.server(
        options=[*_OPTIONS, *message_options(max_message_bytes)],
        interceptors=[RefuseUndecodable(service.names), *service.interceptors],
    )
    service.register(server)
    health_servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(health_servicer, server)
    names = [*service.names, health.SERVICE_NAME, reflection.SERVICE_NAME]
    reflection.enable_server_reflection(names, server)
    for name in service.names:
        await health_servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    addresses = [bind(server, address) for address in listen]
    await server.start()
    try:
        yield addresses
        await health_servicer.enter_graceful_shutdown()
        try:
            async with asyncio.timeout(grace_s):
                await service.drain()
        except TimeoutError:
            _log.warning("work was left after %g s of drain and is cut off", grace_s)
    finally:
        await server.stop(_FLUSH_S)


async def until_stopped(on_ready: Callable[[], None]) -> None:
    """Return on SIGTERM or SIGINT; from then on another one ends the process, without a word.

    ``on_ready`` is called once they are waited for.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = (signal.SIGTERM, signal.SIGINT)
    for number in signals:
        loop.add_signal_handler(number, stop.set)
    try:
        on_ready()
        await stop.wait()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        # Python's own handler would raise somewhere in the middle of the drain.
        loop.add_signal_handler(signal.SIGINT, os._exit, 128 + signal.SIGINT)
