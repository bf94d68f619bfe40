"""Progress bars on stderr, when that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def progress_bars(names: Sequence[str], total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar for each name; the value takes a step of ``total`` of the named one."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    bars = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bars:
        tasks = {name: bars.add_task(name, total=total) for name in names}
        yield lambda name: bars.advance(tasks[name])
