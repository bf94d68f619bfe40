"""Nodes from the config file, read again while the router runs."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, replace
from pathlib import Path

from prefix_cache.errors import InvalidArgument
from router.config import PoolConfig, RouterConfig
from router.config_file import ConfigFile
from router.discovery.membership import Member
from router.dispatcher import Dispatcher

_LOOK_INTERVAL_S = 1.0

_log = logging.getLogger(__name__)


async def config_members(config: RouterConfig) -> AsyncGenerator[Sequence[Member], None]:
    """Yield the nodes that a config names, once: there is no file that could change."""
    yield _members(config.pools)


async def config_file_members(
    file: ConfigFile, running: RouterConfig, dispatcher: Dispatcher
) -> AsyncGenerator[Sequence[Member], None]:
    """Yield the nodes of ``running``, and those of the file when it changed and at each SIGHUP.

    ``running`` is the config that the router was started with, maybe long ago: a worker that is
    started again gets it, too.  The models of pools are taken over as well.  What else differs is
    logged: it needs a restart.  A file with an error is logged with it, and changes nothing.
    """
    pools = {pool.name: pool for pool in running.pools}
    said = running
    with _sighup() as told:
        yield _members(pools.values())
        seen: tuple[int, int, int] | None = None
        while True:
            state = _state(file.path)
            is_asked = told.is_set()
            if state == seen and not is_asked:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_INTERVAL_S):
                        await told.wait()
                continue
            seen = state
            told.clear()
            try:
                config = file.read()
            except (InvalidArgument, OSError) as error:
                _log.error("the config stays as it was: %s", error)
                continue
            if config == said and not is_asked:
                continue
            said = config
            _log.info("%s was read again", file.path)
            if names := ", ".join(_needing_restart(running, config)):
                _log.warning("%s: %s changed, restart the router for that", file.path, names)
            for pool in config.pools:
                if pool.name in pools:
                    pools[pool.name] = pool
                    live = dispatcher.pools[pool.name]
                    live.config = replace(live.config, models=pool.models)
            yield _members(pools.values())


def _members(pools: Iterable[PoolConfig]) -> Sequence[Member]:
    return [Member(pool.name, spec) for pool in pools for spec in pool.nodes]


@contextmanager
def _sighup() -> Iterator[asyncio.Event]:
    """Let SIGHUP set an event instead of ending the process."""
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, told.set)
    try:
        yield told
    finally:
        loop.remove_signal_handler(signal.SIGHUP)


def _state(path: Path) -> tuple[int, int, int] | None:
    """What differs once the file was written, or another was put in its place."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _needing_restart(running: RouterConfig, config: RouterConfig) -> Iterator[str]:
    yield from (name for name in _differing(running, config) if name != "pools")
    old, new = ({pool.name: pool for pool in each.pools} for each in (running, config))
    for name in sorted(old | new):
        if name in old and name in new:
            for field in _differing(old[name], new[name]):
                if field not in ("nodes", "models"):
                    yield f"pools.{name}.{field}"
        else:
            yield f"pools.{name}"


def _differing(one: RouterConfig | PoolConfig, other: RouterConfig | PoolConfig) -> Iterator[str]:
    for field in fields(one):
        if getattr(one, field.name) != getattr(other, field.name):
            yield field.name
