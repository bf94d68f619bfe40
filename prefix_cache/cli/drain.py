"""``prefix-cache drain``: empty a node of a router, or let it take turns again."""

from __future__ import annotations

import json

import click

from prefix_cache.cli.common_options import json_lines_option


@click.command(
    short_help="Move a node's conversations away.",
    epilog="\b\nExample:\n  prefix-cache drain a --router 127.0.0.1:50050",
)
@click.argument("node")
@click.option(
    "--router",
    "address",
    default="127.0.0.1:50050",
    metavar="ADDRESS",
    help="RouterService of the router, as it was given to --listen.",
)
@click.option("--undo", is_flag=True, help="Let the node take turns again.")
@json_lines_option
def drain(node: str, address: str, undo: bool, as_json: bool) -> None:
    """Make the conversations of NODE move to others at their next turn, and send it no new ones.

    Turns under way there go on.  It stays so whatever the node's health, also when it is gone and
    another comes by its name, until --undo.  All workers of the router follow, and all routers that
    share a Redis with it.
    """
    from prefix_cache.cli.terminal.printable import printable
    from prefix_cache.client import RouterClient

    with RouterClient(address) as router:
        conversations = router.drain(node, undo=undo)
    if as_json:
        click.echo(json.dumps({"node": node, "draining": not undo, "conversations": conversations}))
        return
    does = "takes turns again" if undo else "is draining"
    click.echo(f"{printable(node)} {does}, {conversations:,} conversations are pinned there")
