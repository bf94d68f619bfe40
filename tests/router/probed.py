"""A router that probes stand-ins of engines, and real cache nodes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web

from prefix_cache.client import AsyncNodeClient
from prefix_cache.index import Identity
from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.index.tokens import as_token_bytes
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.turn import Prompt
from router.watcher import Watchers

DEADLINE_S = 20.0
WHO = Identity("m")


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


@dataclass
class Engine:
    """What a bare engine answers to probes."""

    url: str = ""
    health: int = 200
    probes: int = 0
    before_answer: Callable[[], None] = lambda: None
    """Called when it was asked for its health, before it says so."""
    models: object = field(default_factory=lambda: {"data": [{"id": "m"}, {"id": "lora"}]})


@asynccontextmanager
async def running_engine(port: int = 0) -> AsyncIterator[Engine]:
    engine = Engine()

    async def health(_: web.Request) -> web.Response:
        engine.probes += 1
        engine.before_answer()
        return web.Response(status=engine.health)

    async def models(_: web.Request) -> web.Response:
        return web.json_response(engine.models)

    app = web.Application()
    app.add_routes([web.get("/health", health), web.get("/v1/models", models)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()


@dataclass
class Fleet:
    dispatcher: Dispatcher
    watchers: Watchers

    async def join(self, name: str, address: str = "", url: str = "") -> Node:
        """Take a node in; it was probed once."""
        node = self.dispatcher.add_node("default", NodeSpec(name, address, url))
        await self.watchers.start(node)
        return node

    async def leave(self, node: Node) -> None:
        self.dispatcher.remove_node(node)
        await self.watchers.stop(node)


@asynccontextmanager
async def fleet(
    pool: PoolConfig | None = None, *, interval_s: float = 0.02, timeout_s: float = 2.0
) -> AsyncIterator[Fleet]:
    """A router without nodes that probes eagerly."""
    config = RouterConfig(
        pools=(pool or PoolConfig(),), probe_interval_s=interval_s, probe_timeout_s=timeout_s
    )
    dispatcher = Dispatcher(config)
    watchers = Watchers(dispatcher, config)
    try:
        yield Fleet(dispatcher, watchers)
    finally:
        await watchers.close()


def prompt(*tokens: int, block_size: int = 16) -> Prompt:
    hasher = BlockHasher(block_size, None)
    packed = as_token_bytes(tokens)
    whole = len(tokens) // block_size * block_size * 4
    chain = hasher.split(hasher.chain(hasher.root(WHO), packed[:whole], {}))
    return Prompt(len(tokens), b"", chain, block_size)


async def store(address: str, *tokens: int) -> None:
    async with AsyncNodeClient(address) as node:
        sequence = await node.acquire(WHO, list(tokens))
        await node.commit(sequence.id, len(tokens))
        await node.release(sequence.id)
