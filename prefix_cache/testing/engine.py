"""An OpenAI-compatible engine to test against: an exact prefix cache, no model, faults on demand.

Its tokens are the bytes of the plain chat template in UTF-8, and its answers are made of the
prompt alone.  An answer is cached in the form in which it comes back in the next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from prefix_cache.openai_api.listening import listening
from prefix_cache.serving import until_stopped
from prefix_cache.testing.config import EngineConfig
from prefix_cache.testing.counts import Counts
from prefix_cache.testing.faults import Faults, FaultSwitch
from prefix_cache.testing.http_api import make_app
from prefix_cache.testing.memory import Memory, OwnMemory
from prefix_cache.testing.worker import Worker


@dataclass(frozen=True)
class Engine:
    """An engine that runs: where it listens, and what it counts."""

    url: str
    counts: Counts
    faults: FaultSwitch


@asynccontextmanager
async def running_engine(config: EngineConfig | None = None) -> AsyncIterator[Engine]:
    """Run an engine in this event loop while the context is open.

    Raises ``CannotListen``.  Leaving drains it: requests that hang go on, and answers have
    ``drain_grace_s`` seconds to end.
    """
    config = config or EngineConfig()
    own = OwnMemory(config.num_blocks, config.block_size)
    faults, counts = FaultSwitch(config.faults, own.wipe), Counts()
    async with AsyncExitStack() as stack:
        memory: Memory = own
        if config.node:
            from prefix_cache.testing.told_memory import ToldMemory  # loads all of gRPC

            memory = await stack.enter_async_context(ToldMemory(own, config.node))
        app = make_app(config, Worker(config, memory), faults, counts)
        url = await stack.enter_async_context(listening(app, config.listen, config.drain_grace_s))
        # Before the server waits for its requests to end.
        stack.callback(faults.set, Faults())
        yield Engine(url, counts, faults)


def run_engine(config: EngineConfig, on_ready: Callable[[str], None]) -> Counts:
    """Run an engine until SIGTERM or SIGINT, drain it, and return what it counted.

    ``on_ready`` gets the URL.  Raises ``CannotListen``.
    """
    return asyncio.run(_run(config, on_ready))


async def _run(config: EngineConfig, on_ready: Callable[[str], None]) -> Counts:
    async with running_engine(config) as engine:
        await until_stopped(lambda: on_ready(engine.url))
    return engine.counts
