"""Plain tables, printed whole: rich would cut numbers to make one fit."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_ANY_WIDTH = 10_000


def plain_table() -> Table:
    """Return a table with one line, below its head."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


def room_for(console: Console, table: Table) -> Measurement:
    """Return how many columns of a terminal the table takes, at least and at most."""
    return Measurement.get(console, console.options.update(max_width=_ANY_WIDTH), table)


def print_whole(console: Console, table: Table) -> None:
    """Print a table; where it needs more room than there is, the console is made wider for good."""
    console.width = max(console.width, room_for(console, table).maximum)
    console.print(table)


def plain_console() -> Console:
    """Return the console of a report: what it prints stands there as it was written."""
    return Console(highlight=False, markup=False)
