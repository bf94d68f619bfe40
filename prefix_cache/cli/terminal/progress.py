"""Progress bars on stderr, when that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


@contextmanager
def progress_bars(names: Sequence[str], total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar for each name; the value takes a step of ``total`` of the named one."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    title = TextColumn("{task.description}")
    with on_stderr(title, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bars:
        tasks = {name: bars.add_task(name, total=total) for name in names}
        yield lambda name: bars.advance(tasks[name])


def on_stderr(*columns: ProgressColumn) -> Progress:
    """Return bars of these columns; they are gone once they are done."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
