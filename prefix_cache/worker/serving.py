"""Runs a worker that serves over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prefix_cache.openai_api.listening import listening
from prefix_cache.serving import until_stopped
from prefix_cache.worker.async_engine import AsyncEngine
from prefix_cache.worker.config import WorkerConfig
from prefix_cache.worker.engine_stats import EngineStats
from prefix_cache.worker.http.api import make_app
from prefix_cache.worker.setup import worker


@dataclass(frozen=True)
class ServingWorker:
    """A worker that serves: where, and what does the work."""

    url: str
    async_engine: AsyncEngine


@asynccontextmanager
async def serving_worker(config: WorkerConfig) -> AsyncIterator[ServingWorker]:
    """Serve in this event loop while the context is open.

    Raises ``CannotListen``, and what ``worker`` raises.  Leaving drains: answers have
    ``drain_grace_s`` seconds to end.
    """
    with worker(config) as built:
        async with AsyncEngine(built.engine) as engine:
            app = make_app(built, engine, config.seed)
            async with listening(app, config.listen, config.drain_grace_s) as url:
                yield ServingWorker(url, engine)


def run_worker(config: WorkerConfig, on_ready: Callable[[str], None]) -> EngineStats:
    """Serve until SIGTERM or SIGINT, drain, and return what was counted.

    ``on_ready`` gets the URL.  Raises what ``serving_worker`` raises, and what the engine failed
    with if it did.
    """
    return asyncio.run(_run(config, on_ready))


async def _run(config: WorkerConfig, on_ready: Callable[[str], None]) -> EngineStats:
    async with serving_worker(config) as serving:
        engine = serving.async_engine
        stopped = asyncio.ensure_future(until_stopped(lambda: on_ready(serving.url)))
        failed = asyncio.ensure_future(engine.failed())
        done, pending = await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        for task in done:
            task.result()
    return engine.engine.stats
