"""``prefix-cache node``: run a cache node."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from prefix_cache.cli.serving import announce, json_option, log_to_stderr
from prefix_cache.wire import DEFAULT_MAX_MESSAGE_BYTES


@click.command(
    epilog="\b\nExample:\n"
    "  prefix-cache node --listen 127.0.0.1:50051 --listen unix:///run/prefix-cache.sock\n"
)
@click.option(
    "--listen",
    multiple=True,
    default=["127.0.0.1:50051"],
    metavar="ADDRESS",
    help="HOST:PORT (port 0: a free one) or unix:///PATH; may be repeated.",
)
@click.option("--num-blocks", default=4096, help="Blocks in the worker's KV memory.")
@click.option("--block-size", default=16, help="Tokens per block.")
@click.option("--name", default="node", help="Name of this node.")
@click.option("--model", default="", show_default="any", help="Serve this model only.")
@click.option("--kv-dtype", default="", show_default="any", help="Serve this KV dtype only.")
@click.option(
    "--max-message-bytes", default=DEFAULT_MAX_MESSAGE_BYTES, help="Largest message accepted."
)
@json_option
def node(
    listen: tuple[str, ...],
    num_blocks: int,
    block_size: int,
    name: str,
    model: str,
    kv_dtype: str,
    max_message_bytes: int,
    as_json: bool,
) -> None:
    """Run a cache node beside an inference worker.

    It knows which KV blocks the worker holds.  SIGTERM or Ctrl-C drains it: no new sequences,
    and the end when the live ones have ended.
    """
    from prefix_cache.node import NodeConfig, run_node

    log_to_stderr()
    config = NodeConfig(
        name=name,
        num_blocks=num_blocks,
        block_size=block_size,
        model=model,
        kv_dtype=kv_dtype,
        max_message_bytes=max_message_bytes,
        listen=listen,
    )
    stats = run_node(config, announce(as_json))
    if as_json:
        click.echo(json.dumps({"event": "stopped", "stats": asdict(stats)}))
    else:
        click.echo(
            f"stopped: {stats.hit_tokens:,} of {stats.query_tokens:,} prompt tokens were cached, "
            f"{stats.cached:,} of {stats.num_blocks:,} blocks are, "
            f"{stats.evicted_blocks:,} were evicted"
        )
