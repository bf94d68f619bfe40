"""The registry in Redis: nodes announce themselves, and routers read who is there.

An announcement lives for a few seconds and is renewed all the time, so that a node that was
killed is gone soon.  All keys share one hash tag: one pipeline serves them in cluster mode too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from prefix_cache.redis_client import connect_redis, finished

if TYPE_CHECKING:
    from prefix_cache.redis_client import RedisClient

TTL_S = 5.0
"""An announcement that was not renewed for so long is gone."""
HEARTBEAT_S = 1.5
_TIMEOUT_S = 1.0

_NAMES = "prefix-cache:{registry}:names"
_NODE = "prefix-cache:{registry}:node:"

_log = logging.getLogger(__name__)


class Announcement(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of itself.

    ``address`` is where a cache node serves gRPC, ``url`` where an engine serves HTTP; one of
    them may be empty.  ``incarnation`` says which life this is.  Names are unique over all pools.
    """

    name: str
    pool: str = "default"
    address: str = ""
    url: str = ""
    incarnation: int = 0
    model: str = ""
    block_size: int = 0


@asynccontextmanager
async def announcing(redis_url: str, current: Callable[[], Announcement]) -> AsyncIterator[None]:
    """Announce what ``current`` returns while the context is open, and no longer.

    A Redis that is away is tried again at each heartbeat, and stops nobody.
    """
    redis = connect_redis(redis_url, timeout_s=_TIMEOUT_S)
    heart = asyncio.create_task(_beat(redis, current))
    try:
        yield
    finally:
        heart.cancel()
        with suppress(asyncio.CancelledError):
            await heart
        with suppress(Exception):
            await _withdraw(redis, current())
        await redis.aclose()


async def read_registry(redis: RedisClient) -> list[Announcement]:
    """Return what is announced now, by name.  Raises an error of redis when it is away.

    What cannot be read is left out: it is somebody else's, or of another version.
    """
    names = sorted(await redis.smembers(_NAMES))
    if not names:
        return []
    values = await redis.mget([_NODE.encode() + _bytes(name) for name in names])
    gone = [name for name, value in zip(names, values, strict=True) if value is None]
    if gone:
        await redis.srem(_NAMES, *gone)  # one that lives still comes back with its next heartbeat
    announcements = []
    for name, value in zip(names, values, strict=True):
        if value is None:
            continue
        try:
            announcements.append(msgspec.msgpack.decode(_bytes(value), type=Announcement))
        except msgspec.DecodeError as error:
            _log.warning("the registry holds no announcement under %r: %s", name, error)
    return announcements


async def _beat(redis: RedisClient, current: Callable[[], Announcement]) -> None:
    is_away = False
    while True:
        try:
            await finished(_announce(redis, current()))
        except Exception as error:
            if not is_away:
                _log.warning("the registry cannot be reached, and is tried again: %s", error)
            is_away = True
        else:
            if is_away:
                _log.info("the registry is back")
            is_away = False
        await asyncio.sleep(HEARTBEAT_S)


async def _announce(redis: RedisClient, announcement: Announcement) -> None:
    pipeline = redis.pipeline(transaction=False)
    value = msgspec.msgpack.encode(announcement)
    pipeline.set(_NODE + announcement.name, value, px=round(TTL_S * 1000))
    pipeline.sadd(_NAMES, announcement.name)
    await pipeline.execute()


async def _withdraw(redis: RedisClient, announcement: Announcement) -> None:
    key = _NODE + announcement.name
    # Not when a successor of the same name has announced itself already.
    if await redis.get(key) == msgspec.msgpack.encode(announcement):
        await redis.delete(key)


def _bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
