"""Which nodes were told to drain, as the routers of one Redis tell each other and the next one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from prefix_cache.redis_client import connect_redis, finished
from router.drains import Word
from router.fleet import Fleet

if TYPE_CHECKING:
    from prefix_cache.redis_client import RedisClient

_KEY = "prefix-cache:drains"
_INTERVAL_S = 1.0
_TIMEOUT_S = 1.0

_decode = msgspec.msgpack.Decoder(dict[str, Word]).decode


@asynccontextmanager
async def sharing_drains(redis_url: str, fleet: Fleet) -> AsyncIterator[None]:
    """Keep what nodes were told the same here and there while the context is open.

    On entry it was read once, if Redis is there.
    """
    redis = connect_redis(redis_url, timeout_s=_TIMEOUT_S)
    told = asyncio.Event()
    fleet.on_drain = told.set
    await _exchange(redis, fleet)
    task = asyncio.create_task(_go_on(redis, fleet, told))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await redis.aclose()


async def _go_on(redis: RedisClient, fleet: Fleet, told: asyncio.Event) -> None:
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(_INTERVAL_S):
                await told.wait()
        told.clear()
        await _exchange(redis, fleet)


async def _exchange(redis: RedisClient, fleet: Fleet) -> None:
    try:
        words = await finished(_read(redis))
    except Exception:  # Redis is away: nothing changes, and who shares pins there says so
        return
    fleet.learn_drains(words)
    if fleet.drains.words != words:
        # Of two who write at once, one finds its own words missing at its next look.
        with suppress(Exception):
            await finished(_write(redis, fleet.drains.words))


async def _read(redis: RedisClient) -> dict[str, Word]:
    value = await redis.get(_KEY)
    try:
        return _decode(value) if isinstance(value, bytes) else {}
    except msgspec.DecodeError:  # written by somebody else
        return {}


async def _write(redis: RedisClient, words: dict[str, Word]) -> None:
    await redis.set(_KEY, msgspec.msgpack.encode(words))
