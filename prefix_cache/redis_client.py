"""Connections to the Redis that routers and nodes share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from prefix_cache.errors import InvalidArgument

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

    RedisClient: TypeAlias = "Redis | RedisCluster"


Result = TypeVar("Result")

_URL = re.compile(r"rediss?(\+cluster)?://([^@\s]*@)?[^@/:\s]+(:\d+)?(/\d*)?")


def check_redis_url(setting: str, url: str) -> None:
    """Raise InvalidArgument unless ``url``, the value of a setting, is one for `connect_redis`."""
    if not _URL.fullmatch(url):
        # Without the value: it may hold a password.
        raise InvalidArgument(
            f"{setting} is no URL of a Redis, expected redis://HOST:PORT or "
            "redis+cluster://HOST:PORT",
            name=setting,
        )


def connect_redis(url: str, *, timeout_s: float) -> RedisClient:
    """Return a client for ``redis://``, or for ``redis+cluster://`` in cluster mode.

    It connects with its first command.  Connecting, and each answer, take ``timeout_s`` at most.
    Nothing is tried twice: who calls knows better whether it is still wanted.  When Redis is away
    commands raise RedisError and OSError, and in cluster mode whatever the client stumbles over:
    who must go on without Redis expects any Exception.
    """
    # Takes as long to load as all the rest of a node.
    from redis.asyncio import Redis, RedisCluster
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    options: dict[str, Any] = {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }
    scheme, _, place = url.partition("://")
    if scheme.endswith("+cluster"):
        return RedisCluster.from_url(f"{scheme.removesuffix('+cluster')}://{place}", **options)
    return Redis.from_url(url, **options)


async def finished(command: Coroutine[Any, Any, Result]) -> Result:
    """Await commands; a cancellation waits until they are over, one or a few timeouts at most.

    The client may lose a cancellation that reaches it at the wrong moment.
    """
    task = asyncio.create_task(command)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.gather(task, return_exceptions=True)
        raise
