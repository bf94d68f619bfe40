"""Serves an application over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from prefix_cache.listening import cannot_listen, host_and_port

MAX_BODY_BYTES = 64 * 1024 * 1024


@asynccontextmanager
async def listening(app: web.Application, address: str, grace_s: float) -> AsyncIterator[str]:
    """Serve while the context is open; its value is the URL.

    ``address`` is ``host:port``, with port 0 for a free one.  Raises ``CannotListen``.  Leaving
    drains: answers have ``grace_s`` seconds to end, then they are cancelled.
    """
    host, port = host_and_port(address)
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,  # a client that went away needs no answer
        shutdown_timeout=grace_s,
    )
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host.strip("[]"), port).start()
        except OSError as error:
            raise cannot_listen(address, error.strerror or str(error)) from None
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
