"""``prefix-cache demo``: play conversations and show what caching saved."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefix_cache.cli.ranges import BLOCK_SIZE, NUM_BLOCKS
from prefix_cache.cli.signals import run_stoppable

if TYPE_CHECKING:
    from prefix_cache.replay.comparison import Arm
    from prefix_cache.replay.sources import Source

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_COUNT = click.IntRange(min=1)


@click.command(
    short_help="Play conversations and show what caching saved.",
    epilog="\b\nExamples:\n"
    "  prefix-cache demo\n"
    "  prefix-cache demo --only mission --json\n"
    "  prefix-cache demo --file conversations.jsonl.gz --nodes 4",
)
@click.option(
    "--file",
    type=_FILE,
    help="Conversations as .jsonl or .jsonl.gz, one a line, with messages (role, content) or "
    "conversations (from, value).  [default: the mission's chat and the built-in chats]",
)
@click.option("--only", type=click.Choice(["mission", "chats"]), help="Play one built-in input.")
@click.option(
    "--tokenizer",
    type=_FILE,
    help="A tokenizer.json for the text.  [default: its UTF-8 bytes are the tokens]",
)
@click.option("--nodes", "num_nodes", type=_COUNT, default=3, help="Nodes to start.")
@click.option("--num-blocks", type=NUM_BLOCKS, default=262_144, help="Blocks of each node.")
@click.option("--block-size", type=BLOCK_SIZE, default=16, help="Tokens per block.")
@click.option("--window", type=_COUNT, default=8, help="Conversations that are live at once.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def demo(
    file: Path | None,
    only: str | None,
    tokenizer: Path | None,
    num_nodes: int,
    num_blocks: int,
    block_size: int,
    window: int,
    as_json: bool,
) -> None:
    """Play conversations through real nodes and a router, and show what caching saved.

    Starts the nodes and the router as processes on free ports, plays every turn over gRPC, and
    prints how many tokens of each prompt were cached and how many had to be prefilled.  Then
    plays the same turns on fresh processes with a round-robin router, and without a cache.
    Everything it started is stopped at the end, also on Ctrl-C.
    """
    from prefix_cache.cli.demo_report import print_report, print_warnings
    from prefix_cache.replay.comparison import Comparison
    from prefix_cache.replay.encoding import load_encoding
    from prefix_cache.replay.savings import together
    from prefix_cache.replay.sources import chats, from_file, mission

    if file and only:
        raise click.UsageError("give one of --file and --only")
    encoding = load_encoding(tokenizer)
    if file:
        sources = [from_file(file, encoding)]
    else:
        builtin = {"mission": mission(), "chats": chats(encoding)}
        sources = [builtin[only]] if only else list(builtin.values())

    comparison = Comparison(num_nodes, num_blocks, block_size, window)
    with _progress(sources) as on_turn:
        savings = run_stoppable(comparison.run(sources, on_turn))
    everything = together(savings)
    if as_json:
        inputs = {source.name: source.tokens_are for source in sources}
        settings = {"nodes": num_nodes, "num_blocks": num_blocks, "block_size": block_size}
        answer = {"inputs": inputs} | settings | everything.as_json()
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        click.echo(
            f"Nodes: {num_nodes}, each of {num_blocks:,} blocks of {block_size} tokens. "
            f"Live conversations: {window}.\n"
        )
        for source, saved in zip(sources, savings, strict=True):
            print_report(source, saved)
    print_warnings(everything)
    if not everything.sticky.turns:
        sys.exit(1)


@contextlib.contextmanager
def _progress(sources: Sequence[Source]) -> Iterator[Callable[[Arm], None]]:
    """Show a bar for each arm on stderr, when that is a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from prefix_cache.replay.comparison import ARMS

    num_turns = sum(source.num_turns for source in sources)
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
        tasks = {arm: bars.add_task(arm.name, total=num_turns) for arm in ARMS}
        yield lambda arm: bars.advance(tasks[arm])
