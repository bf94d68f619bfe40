"""``prefix-cache router``: run a router."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefix_cache.cli.common_options import json_lines_option
from prefix_cache.cli.option_types import FILE
from prefix_cache.cli.serving import announce, log_to_stderr, until_eof_option

if TYPE_CHECKING:
    from router.config import RouterConfig
    from router.config_file import ConfigFile


@click.command(
    short_help="Run a router in front of several nodes.",
    epilog="\b\nExamples:\n"
    "  prefix-cache router --node a=127.0.0.1:50051 --node b=127.0.0.1:50052\n"
    "  prefix-cache router --http 0.0.0.0:8080 --node a=http://10.0.0.1:8000\n"
    "  prefix-cache router --config router.toml",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="NAME=ADDRESS,URL",
    help="A node: the address of its cache node, the URL of its engine, or both; may be repeated. "
    "Without any, nodes are those that announce themselves in the Redis.",
)
@click.option(
    "--http",
    metavar="HOST:PORT",
    show_default="not served",
    help="Serve the OpenAI-compatible proxy, /metrics and /explain here.",
)
@click.option(
    "--listen",
    multiple=True,
    show_default="127.0.0.1:50050",
    metavar="ADDRESS",
    help="Serve RouterService here: HOST:PORT (port 0: a free one) or unix:///PATH; may be "
    "repeated.",
)
@click.option(
    "--policy",
    type=click.Choice(["sticky", "prefix", "least_load", "hash", "round_robin", "random"]),
    show_default="sticky",
    help="How a node is chosen for a turn.",
)
@click.option(
    "--config",
    "config_file",
    type=FILE,
    help="A TOML file of settings, with nodes and policy in tables [pools.NAME].  Options given "
    "here win.  Its nodes are read again when it changes, and on SIGHUP.",
)
@click.option(
    "--redis",
    metavar="URL",
    show_default="none",
    help="The Redis that several routers share: redis://HOST:PORT, or redis+cluster://.",
)
@click.option(
    "--workers",
    type=int,
    show_default="1",
    help="Processes that share the port of the proxy.",
)
@until_eof_option
@json_lines_option
def router(
    config_file: Path | None,
    nodes: tuple[str, ...],
    policy: str | None,
    as_json: bool,
    until_eof: bool,
    **options: Any,
) -> None:
    """Run a router that sends each turn of a conversation to the node that holds its prefix.

    It listens once each node was probed.  SIGTERM or Ctrl-C ends it, once the requests under way
    have ended.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it is listened for
    from router.app import run_router

    given = {name: value for name, value in options.items() if value not in (None, ())}
    config, file = _config(config_file, nodes, policy, given)
    log_to_stderr()
    run_router(config, announce(as_json, until_eof), file)


def _config(
    path: Path | None, nodes: tuple[str, ...], policy: str | None, given: dict[str, Any]
) -> tuple[RouterConfig, ConfigFile | None]:
    """What the options say, and the file below them."""
    from router.config import PoolConfig, RouterConfig, parse_nodes
    from router.config_file import ConfigFile

    if path is not None:
        if nodes or policy:
            raise click.UsageError("with --config, nodes and policies stand in that file")
        file = ConfigFile(path, given)
        return file.read(), file
    if not (nodes or "redis" in given):
        raise click.UsageError("no nodes: give --node, --config, or a --redis that knows them")
    pool = PoolConfig(nodes=parse_nodes(nodes), policy=policy or "sticky", registry=not nodes)
    return RouterConfig(pools=(pool,), **given), None
