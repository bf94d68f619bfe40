"""How far the figures of ``prefix-cache simulate`` are: on stderr, when that is a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from prefix_cache.cli.terminal.progress import on_stderr


class FigureProgress:
    """A bar of figures, and the runs of the one that is made."""

    def __init__(self, bars: Progress, total: int) -> None:
        self._bars = bars
        self._task = bars.add_task("", total=total, runs=0)
        self._runs = 0
        self._begun = 0

    def begin(self, number: int) -> None:
        """Go on to a figure: the one before is done."""
        self._runs = 0
        self._bars.update(self._task, description=f"figure {number}", completed=self._begun, runs=0)
        self._begun += 1

    def count_run(self) -> None:
        """Count a simulated run."""
        self._runs += 1
        self._bars.update(self._task, runs=self._runs)


@contextmanager
def figure_progress(total: int) -> Iterator[FigureProgress]:
    """Show a bar of ``total`` figures."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[runs]} runs"),
        TimeElapsedColumn(),
    )
    with on_stderr(*columns) as bars:
        yield FigureProgress(bars, total)
