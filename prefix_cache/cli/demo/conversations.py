"""``prefix-cache demo``: conversations through nodes and a router, and what caching saved."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from prefix_cache.cli.demo.conversations_report import print_report, print_warnings
from prefix_cache.cli.signals import run_stoppable
from prefix_cache.cli.terminal.progress import progress_bars
from prefix_cache.replay.comparison import ARMS, Arm, Comparison
from prefix_cache.replay.encoding import load_encoding
from prefix_cache.replay.savings import together
from prefix_cache.replay.sources import Source, chats, from_file, mission


def demo_conversations(
    comparison: Comparison,
    file: Path | None,
    only: str | None,
    tokenizer: Path | None,
    as_json: bool,
) -> None:
    """Play a file, or what is built in, and print what each way of playing took."""
    encoding = load_encoding(tokenizer)
    if file:
        sources = [from_file(file, encoding)]
    else:
        builtin = {"mission": mission(), "chats": chats(encoding)}
        sources = [builtin[only]] if only else list(builtin.values())

    with _progress(sources) as on_turn:
        savings = run_stoppable(comparison.run(sources, on_turn))
    everything = together(savings)
    num_nodes, num_blocks = comparison.num_nodes, comparison.num_blocks
    block_size = comparison.block_size
    if as_json:
        inputs = {source.name: source.tokens_are for source in sources}
        settings = {"nodes": num_nodes, "num_blocks": num_blocks, "block_size": block_size}
        answer = {"inputs": inputs} | settings | everything.as_json()
        click.echo(json.dumps(answer, ensure_ascii=False))
    else:
        click.echo(
            f"Nodes: {num_nodes}, each of {num_blocks:,} blocks of {block_size} tokens. "
            f"Live conversations: {comparison.window}.\n"
        )
        for source, saved in zip(sources, savings, strict=True):
            print_report(source, saved)
    print_warnings(everything)
    if not everything.sticky.turns:
        sys.exit(1)


@contextmanager
def _progress(sources: Sequence[Source]) -> Iterator[Callable[[Arm], None]]:
    """Show a bar for each arm on stderr, when that is a terminal."""
    num_turns = sum(source.num_turns for source in sources)
    with progress_bars([arm.name for arm in ARMS], num_turns) as advance:
        yield lambda arm: advance(arm.name)
