"""The group of all commands; turns typed errors into one line and an exit code.

This module and those of the commands load nothing large: a command loads what it needs when it
runs, so that help is there at once.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

import click

from prefix_cache import __version__
from prefix_cache.cli import INTERRUPTED
from prefix_cache.cli.bench.command import bench
from prefix_cache.cli.demo.command import demo
from prefix_cache.cli.drain import drain
from prefix_cache.cli.engine import engine
from prefix_cache.cli.explain import explain
from prefix_cache.cli.kv_error import kv_error
from prefix_cache.cli.match import match
from prefix_cache.cli.node import node
from prefix_cache.cli.replay.command import replay
from prefix_cache.cli.router import router
from prefix_cache.cli.simulate.command import simulate
from prefix_cache.cli.size.command import size
from prefix_cache.cli.terminal.printable import printable
from prefix_cache.cli.top.command import top
from prefix_cache.cli.watch import watch
from prefix_cache.cli.worker import worker
from prefix_cache.errors import InvalidArgument, InvalidTokenType, PrefixCacheError


class _Failure(click.ClickException):
    """An error that we raise on purpose: one line, no traceback."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        lines = map(printable, self.message.splitlines())
        click.echo("error: " + "\n".join(lines), file=file, err=True)


class _BadInput(_Failure):
    exit_code = 2


@contextmanager
def _exit_codes() -> Iterator[None]:
    try:
        yield
    except (InvalidArgument, InvalidTokenType) as error:
        raise _BadInput(str(error)) from error
    except PrefixCacheError as error:
        raise _Failure(str(error)) from error
    except BrokenPipeError:  # click ends without a word
        raise
    except OSError as error:
        _give_up_output()
        raise _Failure(str(error)) from error
    except KeyboardInterrupt:  # click would exit with 1
        sys.exit(INTERRUPTED)


def _give_up_output() -> None:
    """Send what is still buffered nowhere: Python would try it again at exit, and fail."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Commands(click.Group):
    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _exit_codes():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _exit_codes():
            returned = super().invoke(ctx)
            # What cannot be written is told while there is somebody to tell it.
            sys.stdout.flush()
            return returned


@click.group(
    cls=_Commands,
    commands=[
        node,
        router,
        engine,
        worker,
        match,
        explain,
        watch,
        top,
        drain,
        demo,
        size,
        replay,
        simulate,
        kv_error,
        bench,
    ],
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="\b\nExample:\n  prefix-cache demo",
)
@click.version_option(__version__, prog_name="prefix-cache")
def commands() -> None:
    """Keep the KV blocks of LLM conversations, find them again, and know what it saved.

    Exit codes: 0 done, 1 failed, 2 bad usage or input, 128 and more ended by a signal, such as
    130 by Ctrl-C.  A node or router that was told to end has done so, and exits with 0.
    """


def run() -> None:
    """Run the command that the arguments of the process name."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without our signs shows "?" for them, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    commands(prog_name="prefix-cache")
