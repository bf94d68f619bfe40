"""The group of all commands; turns typed errors into one line and an exit code."""

from __future__ import annotations

import io
import sys
from typing import IO, Any

import click

from prefix_cache import __version__
from prefix_cache.cli.bench import bench
from prefix_cache.cli.demo import demo
from prefix_cache.cli.match import match
from prefix_cache.cli.node import node
from prefix_cache.cli.router import router
from prefix_cache.errors import InvalidArgument, InvalidTokenType, PrefixCacheError

_INTERRUPTED = 130


class _Failure(click.ClickException):
    """An error that we raise on purpose: one line, no traceback."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"error: {self.message}", file=file, err=True)


class _BadInput(_Failure):
    exit_code = 2


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (InvalidArgument, InvalidTokenType) as error:
            raise _BadInput(str(error)) from error
        except PrefixCacheError as error:
            raise _Failure(str(error)) from error
        except KeyboardInterrupt:
            ctx.exit(_INTERRUPTED)


@click.group(
    cls=_Commands,
    commands=[node, router, match, demo, bench],
    context_settings={"help_option_names": ["-h", "--help"], "show_default": True},
    epilog="\b\nExample:\n  prefix-cache demo",
)
@click.version_option(__version__, prog_name="prefix-cache")
def commands() -> None:
    """Keep the KV blocks of LLM conversations, find them again, and know what it saved.

    Exit codes: 0 done, 1 failed, 2 bad usage or input, 130 interrupted.
    """


def main() -> None:
    """Run the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal without our signs shows "?" for them, not a traceback.
        sys.stdout.reconfigure(errors="replace")
    commands(prog_name="prefix-cache")
