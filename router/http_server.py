"""Serves the router's OpenAI-compatible face while a context is open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection

from prefix_cache.listening import cannot_listen, host_and_port
from router.config import RouterConfig
from router.decisions import Decisions
from router.directory import Directory
from router.dispatcher import Dispatcher
from router.http.client_connection import ClientConnection
from router.http.engine_pool import EnginePool
from router.http.forwarding import Forwarding
from router.http.measurements import Measurements
from router.http.outbox import Outbox
from router.http_api import HttpApi
from router.prompts import BodyReader
from router.status import Status

_BACKLOG = 4096


@contextlib.asynccontextmanager
async def serving_http(
    dispatcher: Dispatcher,
    body_reader: BodyReader,
    decisions: Decisions,
    config: RouterConfig,
    status: Status,
    *,
    directory: Directory | None = None,
    reuse_port: bool = False,
    grace_s: float = 30.0,
) -> AsyncIterator[str]:
    """Serve at ``config.http`` while the context is open; its value is the URL.

    Leaving takes no new connection, and lets requests in flight end for up to ``grace_s`` seconds
    before they are cut off.  Raises CannotListen.
    """
    loop = asyncio.get_running_loop()
    outbox = Outbox(loop)
    engines = EnginePool(outbox, max_head_bytes=config.max_head_bytes)
    connections: set[ClientConnection] = set()
    measurements = Measurements(lambda: len(connections))
    forwarding = Forwarding(
        dispatcher, body_reader, decisions, directory, engines, config, measurements
    )
    api = HttpApi(forwarding, status, connections)
    host, port = host_and_port(config.http)
    try:
        server = await loop.create_server(
            lambda: ClientConnection(api, outbox),
            host.strip("[]"),
            port,
            backlog=_BACKLOG,
            reuse_port=reuse_port,
        )
    except OSError as error:
        raise cannot_listen(config.http, error.strerror or str(error)) from None
    status.registry.register(measurements)
    try:
        yield f"http://{host}:{server.sockets[0].getsockname()[1]}"
        await _let_in(connections)
        server.close()
        await asyncio.sleep(0)  # what has been sent already is served, too
        await api.drain(grace_s)
    finally:
        server.close()
        await api.cut_off()
        engines.close()
        status.registry.unregister(measurements)


async def _let_in(connections: Collection[ClientConnection]) -> None:
    """Wait until those are ``connections`` who the system told that they are connected.

    The loop takes one of them in a turn, and tells of it in the next; those it has not taken when
    it listens no longer are lost.
    """
    for _ in range(_BACKLOG):
        known = len(connections)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        if len(connections) <= known:
            break
