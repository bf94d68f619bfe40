"""``prefix-cache node``: run a cache node."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefix_cache.cli.common_options import given_names, json_lines_option
from prefix_cache.cli.option_types import BLOCK_SIZE, FILE, NUM_BLOCKS
from prefix_cache.cli.serving import announce, log_to_stderr, until_eof_option
from prefix_cache.errors import InvalidArgument

if TYPE_CHECKING:
    from prefix_cache.node import NodeConfig


@click.command(
    epilog="\b\nExamples:\n"
    "  prefix-cache node --listen 127.0.0.1:50051 --listen unix:///run/prefix-cache.sock\n"
    "  prefix-cache node --config node.toml --num-blocks 8192"
)
@click.option(
    "--config",
    "config_file",
    type=FILE,
    help="A TOML file of settings; its keys are the names of these options with _ for -, such as "
    "num_blocks = 4096.  Options given here win.",
)
@click.option(
    "--listen",
    multiple=True,
    default=["127.0.0.1:50051"],
    metavar="ADDRESS",
    help="HOST:PORT (port 0: a free one) or unix:///PATH; may be repeated.",
)
@click.option(
    "--num-blocks", type=NUM_BLOCKS, default=4096, help="Blocks in the worker's KV memory."
)
@click.option("--block-size", type=BLOCK_SIZE, default=16, help="Tokens per block.")
@click.option("--name", default="node", help="Name of this node.")
@click.option("--model", default="", show_default="any", help="Serve this model only.")
@click.option("--kv-dtype", default="", show_default="any", help="Serve this KV dtype only.")
@click.option("--max-message-bytes", default=64 * 1024 * 1024, help="Largest message accepted.")
@click.option(
    "--drain-grace", "drain_grace_s", default=30.0, help="Seconds that sequences get to end in."
)
@click.option(
    "--lease",
    "lease_s",
    default=60.0,
    help="Seconds that a sequence of a unary call lives untouched.",
)
@click.option(
    "--max-lease", "max_lease_s", default=600.0, help="Seconds that a client may ask for."
)
@click.option(
    "--max-sequences-per-client",
    default=65_536,
    help="Sequences that a session, or one host by unary calls, may have open; 0: no limit.",
)
@click.option(
    "--max-blocks-per-client",
    default=16_777_216,
    help="Blocks that the block tables of these may have; 0: no limit.",
)
@click.option(
    "--max-operations-per-step",
    default=16_384,
    help="Operations that one message of a session may carry.",
)
@click.option(
    "--host-blocks",
    default=0,
    show_default="no such tier",
    help="Slots of a block each on the host, where evicted blocks move to.",
)
@click.option(
    "--copy-timeout",
    "copy_timeout_s",
    default=60.0,
    help="Seconds after which copies between GPU and host count as lost: more than they can take.",
)
@click.option(
    "--event-log-bytes",
    default=64 * 1024 * 1024,
    help="Memory for the events that a watcher can go on from.",
)
@click.option(
    "--metrics",
    default="",
    show_default="not served",
    metavar="HOST:PORT",
    help="Serve metrics for Prometheus here.",
)
@click.option(
    "--allow-explain-across-salts",
    is_flag=True,
    help="Let every client learn what is cached under other salts.",
)
@click.option(
    "--announce",
    default="",
    show_default="nowhere",
    metavar="REDIS",
    help="Tell routers of this node in this Redis: redis://HOST:PORT, or redis+cluster://.",
)
@click.option("--pool", default="default", help="Pool of the routers that it is announced for.")
@click.option(
    "--engine-url",
    default="",
    show_default="none",
    metavar="URL",
    help="Where the engine beside it serves HTTP, to be announced.",
)
@click.option(
    "--advertise",
    default="",
    show_default="the first --listen",
    metavar="ADDRESS",
    help="Where routers reach this node, to be announced.",
)
@until_eof_option
@json_lines_option
@click.pass_context
def node(
    context: click.Context,
    /,
    config_file: Path | None,
    as_json: bool,
    until_eof: bool,
    **options: Any,
) -> None:
    """Run a cache node beside an inference worker.

    It knows which KV blocks the worker holds.  SIGTERM or Ctrl-C drains it: no new sequences,
    and the end when the live ones have ended.
    """
    from prefix_cache.node import run_node

    names = given_names(context)
    given = {name: value for name, value in options.items() if name in names}
    config = _config(config_file, given, default_lease_s=options["lease_s"])
    log_to_stderr()
    stats = run_node(config, announce(as_json, until_eof))
    if as_json:
        click.echo(json.dumps({"event": "stopped", "stats": asdict(stats)}))
    else:
        click.echo(
            f"stopped: {stats.hit_tokens:,} of {stats.query_tokens:,} prompt tokens were cached, "
            f"{stats.cached:,} of {stats.num_blocks:,} blocks are, "
            f"{stats.evicted_blocks:,} were evicted"
        )


def _config(file: Path | None, given: dict[str, Any], default_lease_s: float) -> NodeConfig:
    """What the file says, and the options that were given, which win."""
    from prefix_cache.node import NodeConfig
    from prefix_cache.node.config_file import read_settings

    in_file = read_settings(file) if file else {}
    settings = in_file | given
    if "max_lease_s" in settings:
        settings.setdefault("lease_s", min(default_lease_s, settings["max_lease_s"]))
    try:
        return NodeConfig(**settings)
    except InvalidArgument as error:
        name = str(error.details["name"])
        key = name.removesuffix("_s")
        is_from_file = name in in_file and name not in given
        said_by = f"{file}: {key}" if is_from_file else f"--{key.replace('_', '-')}"
        # The message begins with the setting's name, which is the option's but for the unit.
        raise InvalidArgument(said_by + str(error).removeprefix(name), **error.details) from None
