"""Nodes from the registry in Redis, where they announce themselves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence

from prefix_cache.errors import InvalidArgument
from prefix_cache.redis_client import connect_redis, finished
from prefix_cache.registry import TTL_S, Announcement, RegistryReader
from router.config import NodeSpec
from router.discovery.membership import Member

_INTERVAL_S = 1.0
_TIMEOUT_S = 1.0

_log = logging.getLogger(__name__)


async def registry_members(
    redis_url: str, pools: Collection[str], clock: Callable[[], float] = time.monotonic
) -> AsyncGenerator[Sequence[Member], None]:
    """Yield the nodes that are announced for ``pools``, again every second.

    While Redis is away nothing changes.  It may come back empty: then nodes have the time of an
    announcement to announce themselves again.
    """
    redis = connect_redis(redis_url, timeout_s=_TIMEOUT_S)
    registry = RegistryReader(redis)
    members: dict[str, Member] = {}
    is_away, back_at = False, float("-inf")
    refused: set[Announcement] = set()
    try:
        while True:
            try:
                announced = await finished(registry.read())
            except Exception as error:
                if not is_away:
                    _log.warning("the registry is away, its last nodes are kept: %s", error)
                is_away = True
            else:
                if is_away:
                    is_away, back_at = False, clock()
                refused.intersection_update(announced)
                kept = members if clock() < back_at + TTL_S else {}
                members = kept | {
                    member.spec.name: member for member in _members(announced, pools, refused)
                }
            yield list(members.values())
            await asyncio.sleep(_INTERVAL_S)
    finally:
        await redis.aclose()


def _members(
    announced: Iterable[Announcement], pools: Collection[str], refused: set[Announcement]
) -> Iterable[Member]:
    for each in announced:
        if each.pool not in pools or each in refused:
            continue
        places = ",".join(place for place in (each.address, each.url) if place)
        try:
            spec = NodeSpec.parse(each.name, places)
        except InvalidArgument as error:
            refused.add(each)
            _log.warning("the announcement of %r is left out: %s", each.name, error)
        else:
            # A cache node tells its incarnation itself.
            yield Member(each.pool, spec, 0 if each.address else each.incarnation)
