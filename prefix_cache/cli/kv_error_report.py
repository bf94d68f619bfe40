"""The table of ``prefix-cache kv-error``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING

from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole

if TYPE_CHECKING:
    from prefix_cache.kv.measured_error import MeasuredError
    from prefix_cache.kv.model_error import ModelError


def as_object(error: MeasuredError | ModelError) -> dict[str, object]:
    """Return its fields, the storage by its name, for JSON."""
    return {**asdict(error), "storage": error.storage.name}


def print_errors(errors: Iterable[MeasuredError | ModelError]) -> None:
    """Print a row for each, by context."""
    rows = [as_object(error) for error in errors]
    table = plain_table()
    for name in rows[0]:
        title = "context" if name == "num_tokens" else name.replace("_", " ")
        table.add_column(title, justify="left" if name == "storage" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    print_whole(plain_console(), table)


def _cell(value: object) -> str:
    match value:
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.3%}"
        case _:
            return str(value)
