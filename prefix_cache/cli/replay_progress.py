"""How far a replay is: on stderr, when that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def counted_tokens() -> Iterator[Callable[[int], None]]:
    """Show how many requests and tokens there were; the value counts a request of some tokens.

    How many will come is not known: the file is read as it is played.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.completed:,.0f} requests, {task.fields[tokens]:,} prompt tokens"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        task = progress.add_task("", total=None, tokens=0)
        tokens = 0

        def count(prompt_tokens: int) -> None:
            nonlocal tokens
            tokens += prompt_tokens
            progress.update(task, advance=1, tokens=tokens)

        yield count
