"""How far a replay is: on stderr, when that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prefix_cache.cli.terminal.progress import on_stderr


@contextmanager
def counted_tokens() -> Iterator[Callable[[int], None]]:
    """Show how many requests and tokens there were; the value counts a request of some tokens.

    How many will come is not known: the file is read as it is played.
    """
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    counts = TextColumn("{task.completed:,.0f} requests, {task.fields[tokens]:,} prompt tokens")
    with on_stderr(SpinnerColumn(), counts, TimeElapsedColumn()) as progress:
        task = progress.add_task("", total=None, tokens=0)
        tokens = 0

        def count(prompt_tokens: int) -> None:
            nonlocal tokens
            tokens += prompt_tokens
            progress.update(task, advance=1, tokens=tokens)

        yield count
