"""Shows what a benchmark measured."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console

from prefix_cache.cli.bench.harness import Row, Spread
from prefix_cache.cli.terminal.tables import plain_table


def print_rows(title: str, rows: Iterable[Row]) -> None:
    """Print a table: median (least-greatest) of both sides, and how many times less ours is.

    The parts of a case stand below its name.
    """
    table = plain_table()
    table.add_column(title)
    for column in ("baseline", "ours", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    case = ""
    for row in rows:
        if row.part and row.case != case:
            table.add_row(row.case)
        case = row.case
        name = f"  {row.part}" if row.part else row.case
        table.add_row(name, _spread(row.baseline), _spread(row.ours), f"{_number(row.ratio)}x")
    Console(highlight=False).print(table)


def _spread(spread: Spread) -> str:
    return f"{_number(spread.median)} ({_number(spread.min)}-{_number(spread.max)})"


def _number(value: float) -> str:
    """Three digits at least."""
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"
