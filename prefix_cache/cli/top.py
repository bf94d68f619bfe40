"""``prefix-cache top``: what nodes hold and how much they hit, live."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, TypeAlias

import click

from prefix_cache.cli.ranges import SecondsRange
from prefix_cache.cli.serving import json_option
from prefix_cache.cli.signals import run_stoppable
from prefix_cache.errors import PrefixCacheError

if TYPE_CHECKING:
    from prefix_cache.cli.top_rates import Reading
    from prefix_cache.client import AsyncNodeClient

_PLAIN_WIDTH = 120
# One node that hangs keeps the others waiting for so long.
_TIMEOUT_S = 5.0

_Show: TypeAlias = "Callable[[list[tuple[Reading, Reading | None]]], object]"


@click.command(
    short_help="Show blocks, hits and evictions of nodes, live.",
    epilog="\b\nExamples:\n"
    "  prefix-cache top --node 127.0.0.1:50051 --node 127.0.0.1:50052\n"
    "  prefix-cache top --node 127.0.0.1:50051 --once --json",
)
@click.option(
    "--node",
    "addresses",
    multiple=True,
    required=True,
    metavar="ADDRESS",
    help="Node to show; may be repeated.",
)
@click.option(
    "--interval",
    "interval_s",
    type=SecondsRange(0.1, 3600),
    default=1.0,
    help="Seconds from one look to the next.",
)
@click.option("--once", is_flag=True, help="Look once, and say nothing per second.")
@json_option
def top(addresses: tuple[str, ...], interval_s: float, once: bool, as_json: bool) -> None:
    """Show what nodes hold, how much of their prompts was cached, and what they evict.

    Blocks are drawn as # private, = cached and in use, - cached and evictable, and . free.
    "hits" is the share of prompt tokens that were cached, in all, and "now" that since the last
    look.
    """
    with _show(as_json) as show:
        answered = run_stoppable(_watch(addresses, None if once else interval_s, show))
    if not answered:
        sys.exit(1)


async def _watch(addresses: tuple[str, ...], interval_s: float | None, show: _Show) -> bool:
    """Look again and again, or once; whether all nodes answered the last time."""
    import asyncio

    from prefix_cache.client import AsyncNodeClient

    async with AsyncExitStack() as stack:
        nodes = [
            await stack.enter_async_context(AsyncNodeClient(address, timeout_s=_TIMEOUT_S))
            for address in addresses
        ]
        before: list[Reading | None] = [None] * len(nodes)
        while True:
            now = await asyncio.gather(*map(_read, nodes))
            show(list(zip(now, before, strict=True)))
            if interval_s is None:
                return all(reading.stats for reading in now)
            before = list(now)
            await asyncio.sleep(interval_s)


async def _read(node: AsyncNodeClient) -> Reading:
    from prefix_cache.cli.top_rates import Reading

    try:
        stats = await node.stats()
    except PrefixCacheError as error:
        return Reading(node.address, time.monotonic(), error=str(error))
    return Reading(node.address, time.monotonic(), stats)


@contextmanager
def _show(in_json: bool) -> Iterator[_Show]:
    """What shows the readings: JSON lines, a live table on a terminal, else one after the other."""
    from rich.console import Console
    from rich.live import Live

    from prefix_cache.cli.top_rates import as_json
    from prefix_cache.cli.top_table import table

    console = Console()
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    if in_json:
        yield lambda readings: click.echo(
            json.dumps({"nodes": [as_json(*pair) for pair in readings]})
        )
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda readings: live.update(table(readings), refresh=True)
    else:
        yield lambda readings: console.print(table(readings))
