"""The table of ``prefix-cache top``."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from prefix_cache.cli.terminal.printable import printable
from prefix_cache.cli.terminal.shares import percent
from prefix_cache.cli.top.rates import Reading, rates
from prefix_cache.index.results import Stats

# Characters of a whole pool.
_BAR = 16


def table(readings: Iterable[tuple[Reading, Reading | None]]) -> Table:
    """Return one row for each node: its reading, and the one before."""
    result = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, caption_justify="left")
    result.add_column("node", no_wrap=True)
    result.add_column("blocks", no_wrap=True, min_width=_BAR)
    for name in ("cached", "private", "on host", "live", "hits", "now", "tokens/s", "evicted/s"):
        result.add_column(name, justify="right")
    errors = []
    for now, before in readings:
        if now.stats is None:
            result.add_row(now.address, "no answer")
            errors.append(printable(now.error))
            continue
        stats, rate = now.stats, rates(now, before)
        result.add_row(
            now.address,
            _bar(stats),
            f"{stats.cached:,}",
            f"{stats.private:,}",
            f"{stats.host_cached:,}" if stats.host_blocks else "-",
            f"{stats.live_sequences:,}",
            percent(rate.hit_rate),
            percent(rate.hit_rate_now),
            _number(rate.query_tokens_per_s),
            _number(rate.evictions_per_s),
        )
    result.caption = Text("\n".join(errors)) if errors else None
    return result


def _bar(stats: Stats) -> Text:
    """The pool from left to right: private, cached in use, evictable, free."""
    in_use = stats.cached - stats.evictable
    ends = [stats.private, stats.private + in_use, stats.private + stats.cached, stats.num_blocks]
    bar, start = Text(), 0
    for end, sign, style in zip(ends, "#=-.", ("red", "yellow", "green", "dim"), strict=True):
        stop = round(end * _BAR / stats.num_blocks)
        bar.append(sign * (stop - start), style)
        start = stop
    return bar


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
