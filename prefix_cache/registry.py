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


_decode = msgspec.msgpack.Decoder(Announcement).decode


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


class RegistryReader:
    """Reads what is announced.

    What cannot be read is left out: it is somebody else's, or of another version.  Each such value
    is logged once.
    """

    def __init__(self, redis: RedisClient) -> None:
        self._redis = redis
        self._unreadable: dict[bytes, bytes] = {}

    async def read(self) -> list[Announcement]:
        """Return what is announced now, by name.  Raises an error of redis when it is away."""
        names = sorted(map(_bytes, await self._redis.smembers(_NAMES)))
        values = await self._redis.mget([_NODE.encode() + name for name in names]) if names else ()
        announcements, gone, unreadable = [], [], {}
        for name, value in zip(names, values, strict=True):
            if value is None:
                gone.append(name)
                continue
            try:
                announcements.append(_decode(_bytes(value)))
            except msgspec.DecodeError as error:
                unreadable[name] = _bytes(value)
                if self._unreadable.get(name) != value:
                    _log.warning("the registry holds no announcement under %r: %s", name, error)
        self._unreadable = unreadable
        if gone:
            # One that lives still comes back with its next heartbeat.
            await self._redis.srem(_NAMES, *gone)
        return announcements


async def _beat(redis: RedisClient, current: Callable[[], Announcement]) -> None:
    is_away = False
    rivals = _Rivals()
    while True:
        try:
            announcement = current()
            rivals.note(announcement, await finished(_announce(redis, announcement)))
        except Exception as error:
            if not is_away:
                _log.warning("the registry cannot be reached, and is tried again: %s", error)
            is_away = True
        else:
            if is_away:
                _log.info("the registry is back")
            is_away = False
        await asyncio.sleep(HEARTBEAT_S)


class _Rivals:
    """Who else announces itself by the name of a node: routers see one of them at a time."""

    def __init__(self) -> None:
        self._place: tuple[str, str] | None = None
        self._has_announced = False

    def note(self, mine: Announcement, found: bytes | None) -> None:
        """Take what stood there before ``mine``; it is logged once for each place.

        Before the first time that may be from a life before, at another place.
        """
        has_announced, self._has_announced = self._has_announced, True
        if found is None or not has_announced:
            return
        with suppress(msgspec.DecodeError):
            place = _place(_decode(found))
            if place not in (_place(mine), self._place):
                self._place = place
                _log.warning(
                    "another node announces itself as %r too, at %s: routers can know only one, "
                    "give each a name of its own",
                    *(mine.name, ",".join(filter(None, place))),
                )


async def _announce(redis: RedisClient, announcement: Announcement) -> bytes | None:
    """Announce; return what stood there before."""
    pipeline = redis.pipeline(transaction=False)
    pipeline.get(_NODE + announcement.name)
    value = msgspec.msgpack.encode(announcement)
    pipeline.set(_NODE + announcement.name, value, px=round(TTL_S * 1000))
    pipeline.sadd(_NAMES, announcement.name)
    found: bytes | None
    found, *_ = await pipeline.execute()
    return found


async def _withdraw(redis: RedisClient, announcement: Announcement) -> None:
    key = _NODE + announcement.name
    # Not when a successor of the same name has announced itself already.
    if await redis.get(key) == msgspec.msgpack.encode(announcement):
        await redis.delete(key)


def _place(announcement: Announcement) -> tuple[str, str]:
    return announcement.address, announcement.url


def _bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
