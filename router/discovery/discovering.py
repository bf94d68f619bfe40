"""Follows all sources of nodes that a config has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

from router.config import RouterConfig
from router.config_file import ConfigFile
from router.discovery.config_file import config_file_members, config_members
from router.discovery.dns import dns_members
from router.discovery.membership import Member, Membership, NodeWatchers
from router.discovery.registry import registry_members
from router.dispatcher import Dispatcher

Source = AsyncGenerator[Sequence[Member], None]

_log = logging.getLogger(__name__)


@asynccontextmanager
async def discovering(
    dispatcher: Dispatcher,
    watchers: NodeWatchers,
    config: RouterConfig,
    file: ConfigFile | None = None,
) -> AsyncIterator[None]:
    """Keep the nodes of the router what the sources say, while the context is open.

    With the ``file`` that the config came from, its changes count.  On entry each source was
    asked, and each node probed, once.
    """
    membership = Membership(dispatcher, watchers)
    async with AsyncExitStack() as stack:
        followed = {
            name: await stack.enter_async_context(aclosing(source))
            for name, source in _sources(dispatcher, config, file)
        }
        (config_name, config_source), *others = followed.items()
        await _first(membership, config_name, config_source)  # it has precedence
        await asyncio.gather(*(_first(membership, *each) for each in others))
        tasks = [asyncio.create_task(_follow(membership, *each)) for each in followed.items()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _sources(
    dispatcher: Dispatcher, config: RouterConfig, file: ConfigFile | None
) -> Iterator[tuple[str, Source]]:
    if file is None:
        yield "the config", config_members(config)
    else:
        yield "the config", config_file_members(file, config, dispatcher)
    pools = [pool.name for pool in config.pools if pool.registry]
    if pools:
        yield "the registry", registry_members(config.redis, pools)
    for pool in config.pools:
        if pool.dns:
            yield f"the DNS name of pool {pool.name}", dns_members(pool, config.dns_interval_s)


async def _first(membership: Membership, name: str, source: Source) -> None:
    await membership.want(name, await anext(source))


async def _follow(membership: Membership, name: str, source: Source) -> None:
    try:
        async for members in source:
            await membership.want(name, members)
    except Exception:
        _log.exception("%s is followed no longer", name)
