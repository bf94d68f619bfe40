"""What the commands that serve have in common: where they listen, and how they say so."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import threading
from collections.abc import Callable

import click


def _await_end_of_stdin() -> None:
    # Not through sys.stdin: a thread that waits there keeps the interpreter from ending.
    with contextlib.suppress(OSError):  # there is none
        while os.read(0, 4096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)


until_eof_option = click.option(
    "--until-eof",
    is_flag=True,
    help="End when standard input does, for example because the parent process is gone.",
)


def log_to_stderr() -> None:
    """Show what the server has to say while it runs."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)


def announce(as_json: bool, until_eof: bool) -> Callable[[list[str]], None]:
    """Return what is called once the server listens: it prints the addresses.

    With ``until_eof``, the end of standard input does from then on what SIGTERM does.
    """

    def on_ready(addresses: list[str]) -> None:
        if as_json:
            click.echo(json.dumps({"event": "listening", "addresses": addresses}))
        else:
            for address in addresses:
                click.echo(f"listening on {address}")
        if until_eof:
            threading.Thread(target=_await_end_of_stdin, daemon=True).start()

    return on_ready
