"""Serves a registry to Prometheus over HTTP, on the event loop that runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from prefix_cache.listening import cannot_listen, host_and_port

_PATH = "/metrics"


@asynccontextmanager
async def serving_metrics(registry: CollectorRegistry, address: str) -> AsyncIterator[str]:
    """Serve while the context is open; its value is the URL to scrape.

    ``address`` is ``host:port`` or ``[ipv6]:port``, with port 0 for a free one.  Raises
    ``CannotListen``.
    """
    from aiohttp import web  # takes as long to load as all the rest of a node

    async def scrape(request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    host, port = host_and_port(address)
    app = web.Application()
    app.router.add_get(_PATH, scrape)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host.strip("[]"), port).start()
        except OSError as error:
            raise cannot_listen(address, error.strerror or str(error)) from None
        yield f"http://{host}:{runner.addresses[0][1]}{_PATH}"
    finally:
        await runner.cleanup()
