"""``prefix-cache top``: what nodes hold and how much they hit, live; or what a router sees."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import click

from prefix_cache.cli.common_options import json_lines_option
from prefix_cache.cli.option_types import SecondsRange
from prefix_cache.cli.signals import run_stoppable

if TYPE_CHECKING:
    from rich.table import Table

_PLAIN_WIDTH = 120


class View(Protocol):
    """What is looked at again and again; what it shows is of the last two looks."""

    async def look(self) -> bool:
        """Look once more; whether all answered."""

    def table(self) -> Table:
        """The table for people."""

    def document(self) -> dict[str, Any]:
        """The same for programs."""


_Show: TypeAlias = "Callable[[View], object]"


@click.command(
    short_help="Show nodes, or a router and its nodes, live.",
    epilog="\b\nExamples:\n"
    "  prefix-cache top --node 127.0.0.1:50051 --node 127.0.0.1:50052\n"
    "  prefix-cache top --node 127.0.0.1:50051 --once --json\n"
    "  prefix-cache top --router http://127.0.0.1:8080",
)
@click.option(
    "--node",
    "addresses",
    multiple=True,
    metavar="ADDRESS",
    help="Node to show; may be repeated.",
)
@click.option(
    "--router", "router_url", metavar="URL", help="Router to show, as it was given to --http."
)
@click.option(
    "--interval",
    "interval_s",
    type=SecondsRange(0.1, 3600),
    default=1.0,
    help="Seconds from one look to the next.",
)
@click.option("--once", is_flag=True, help="Look once, and say nothing per second.")
@json_lines_option
def top(
    addresses: tuple[str, ...],
    router_url: str | None,
    interval_s: float,
    once: bool,
    as_json: bool,
) -> None:
    """Show what nodes hold, how much of their prompts was cached, and what they evict.

    Blocks are drawn as # private, = cached and in use, - cached and evictable, and . free.
    "hits" is the share of prompt tokens that were cached, in all, and "now" that since the last
    look.

    Of a router, show its nodes with the turns in flight and the tokens queued there, and what
    was lost of the prompts.
    """
    if bool(addresses) is bool(router_url):
        raise click.UsageError("give --node, or --router")
    with _show(as_json) as show:
        view = _nodes(addresses) if router_url is None else _router(router_url)
        answered = run_stoppable(_watch(view, None if once else interval_s, show))
    if not answered:
        sys.exit(1)


def _nodes(addresses: tuple[str, ...]) -> AbstractAsyncContextManager[View]:
    from prefix_cache.cli.top.nodes import nodes_view

    return nodes_view(addresses)


def _router(url: str) -> AbstractAsyncContextManager[View]:
    from prefix_cache.cli.top.router import router_view

    return router_view(url)


async def _watch(
    opened: AbstractAsyncContextManager[View], interval_s: float | None, show: _Show
) -> bool:
    """Look again and again, or once; whether all answered the last time."""
    import asyncio

    async with opened as view:
        while True:
            answered = await view.look()
            show(view)
            if interval_s is None:
                return answered
            await asyncio.sleep(interval_s)


@contextmanager
def _show(in_json: bool) -> Iterator[_Show]:
    """What shows a view: JSON lines, a live table on a terminal, else one after the other."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    if in_json:
        yield lambda view: click.echo(json.dumps(view.document()))
    elif console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda view: live.update(view.table(), refresh=True)
    else:
        yield lambda view: console.print(view.table())
