"""What the commands that serve have in common: where they listen, and how they say so."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")


def log_to_stderr() -> None:
    """Show what the server has to say while it runs."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)


def announce(as_json: bool) -> Callable[[list[str]], None]:
    """Return what prints the addresses listened on."""

    def on_ready(addresses: list[str]) -> None:
        if as_json:
            click.echo(json.dumps({"event": "listening", "addresses": addresses}))
        else:
            for address in addresses:
                click.echo(f"listening on {address}")

    return on_ready
