"""``prefix-cache engine``: run the test engine."""

from __future__ import annotations

import json
from typing import Any

import click

from prefix_cache.cli.common_options import json_lines_option
from prefix_cache.cli.option_types import BLOCK_SIZE, NUM_BLOCKS, SecondsRange
from prefix_cache.cli.serving import announce, log_to_stderr, until_eof_option


@click.command(
    short_help="Run an OpenAI-compatible engine without a model, to test against.",
    epilog="\b\nExamples:\n"
    "  prefix-cache engine --listen 127.0.0.1:8001 --model test --prefill-tokens-per-s 8000\n"
    "  prefix-cache engine --node 127.0.0.1:50051\n"
    '  curl 127.0.0.1:8001/faults -d \'{"status": 503, "requests": 2}\'',
)
@click.option(
    "--listen",
    default="127.0.0.1:8001",
    metavar="ADDRESS",
    help="HOST:PORT (port 0: a free one).",
)
@click.option("--model", default="test", help="The model that it says it serves.")
@click.option("--num-blocks", type=NUM_BLOCKS, default=65_536, help="Blocks of its KV memory.")
@click.option("--block-size", type=BLOCK_SIZE, default=16, help="Tokens per block.")
@click.option(
    "--prefill-tokens-per-s",
    type=click.FloatRange(min=0),
    default=0.0,
    help="Tokens prefilled in a second, one prompt after the other; 0: prefill takes no time.",
)
@click.option(
    "--decode-s-per-token",
    type=SecondsRange(min=0),
    default=0.0,
    help="Seconds that each token of an answer takes.",
)
@click.option(
    "--node",
    default="",
    show_default="none",
    metavar="ADDRESS",
    help="A cache node to tell what is cached.",
)
@click.option(
    "--drain-grace",
    "drain_grace_s",
    type=SecondsRange(min=0),
    default=5.0,
    help="Seconds that answers get to end in.",
)
@until_eof_option
@json_lines_option
def engine(as_json: bool, until_eof: bool, **options: Any) -> None:
    """Run an OpenAI-compatible engine without a model, to try a router against.

    It has an exact prefix cache of its own, and says how much of each prompt was cached.  Its
    tokens are bytes, its answers are words made of the prompt.  POST /faults makes it fail, GET
    /requests shows what it was asked.  SIGTERM or Ctrl-C drains it.
    """
    from prefix_cache.testing import EngineConfig, run_engine

    log_to_stderr()
    on_ready = announce(as_json, until_eof)
    counts = run_engine(EngineConfig(**options), lambda url: on_ready([url]))
    if as_json:
        ended = {name: getattr(counts, name) for name in ("served", "cancelled", "failed")}
        click.echo(json.dumps({"event": "stopped", **ended}))
    else:
        click.echo(
            f"stopped: {counts.served:,} requests served, "
            f"{counts.cached_tokens:,} of {counts.prompt_tokens:,} prompt tokens were cached"
        )
