"""``prefix-cache router``: run a router."""

from __future__ import annotations

import click

from prefix_cache.cli.serving import announce, json_option, log_to_stderr, until_eof_option


@click.command(
    short_help="Run a router in front of several nodes.",
    epilog="\b\nExample:\n  prefix-cache router --node a=127.0.0.1:50051 --node b=127.0.0.1:50052",
)
@click.option(
    "--node",
    "nodes",
    multiple=True,
    required=True,
    metavar="NAME=ADDRESS",
    help="A cache node; may be repeated.",
)
@click.option(
    "--listen",
    multiple=True,
    default=["127.0.0.1:50050"],
    metavar="ADDRESS",
    help="HOST:PORT (port 0: a free one) or unix:///PATH; may be repeated.",
)
@click.option(
    "--policy",
    type=click.Choice(["sticky", "round_robin", "random", "hash"]),
    default="sticky",
    help="How a node is chosen for a turn.",
)
@until_eof_option
@json_option
def router(
    nodes: tuple[str, ...], listen: tuple[str, ...], policy: str, as_json: bool, until_eof: bool
) -> None:
    """Run a router that sends each turn of a conversation to the node that holds its prefix.

    It listens once each node was probed.  SIGTERM or Ctrl-C ends it.
    """
    from router.app import run_router
    from router.config import RouterConfig, parse_nodes

    log_to_stderr()
    config = RouterConfig(nodes=parse_nodes(nodes), listen=listen, policy=policy)
    run_router(config, announce(as_json, until_eof))
