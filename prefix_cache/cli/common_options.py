"""Options that several commands have, and how commands come by options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

Command = Callable[..., Any]

json_object_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
json_lines_option = click.option("--json", "as_json", is_flag=True, help="Print JSON lines.")


def _in_a_folder(
    context: click.Context, parameter: click.Parameter, html: Path | None
) -> Path | None:
    # Told at once, not when the page is written at the end.
    if html and not html.absolute().parent.is_dir():
        raise click.UsageError(f"--html: there is no folder {html.absolute().parent}")
    return html


html_option = click.option(
    "--html",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=_in_a_folder,
    help="Write a page with plots, too.",
)


def with_options(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    """Add options to a command; its help lists them in their order."""
    for option in reversed(options):
        command = option(command)
    return command


def given_names(context: click.Context) -> set[str]:
    """Return the names of the parameters that were given, not left to their defaults."""
    return {
        name
        for name in context.params
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT
    }
