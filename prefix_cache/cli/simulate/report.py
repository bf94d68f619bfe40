"""What ``prefix-cache simulate`` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import click

from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole
from prefix_cache.simulate.figures import Figure

_WIDTH = 100
COMPARED = ("", "simulated", "paper", "difference")
NOT_BLIND = (
    "This is no blind prediction.  Chosen knowing the paper's results: when measuring begins and "
    "ends, lengths of sentences, sizes of loads, how often beams branch.  Taken from the paper: "
    "means of lengths, and what reading a block costs."
)


def heading(figure: Figure) -> str:
    """Return the title, with the number where it has one."""
    return figure.title if figure.number is None else f"Figure {figure.number}: {figure.title}"


def published(figure: Figure) -> str:
    """Return where the paper has a figure: it numbers them otherwise."""
    return f"In the paper as published: {figure.published}"


def shown_rows(figure: Figure) -> list[list[str]]:
    """Return the rows for people: shares as percentages, other numbers in four digits."""
    return [
        [
            _shown(cell, column in figure.shares)
            for cell, column in zip(row, figure.columns, strict=True)
        ]
        for row in figure.rows
    ]


def compared_rows(figure: Figure) -> list[list[str]]:
    """Return the comparisons as rows of ``COMPARED``."""
    return [[one.what, one.shown(one.ours), one.paper, one.verdict] for one in figure.comparisons]


def print_figures(figures: Sequence[Figure]) -> None:
    """Print figures one below the other."""
    for number, figure in enumerate(figures):
        if number:
            click.echo()
        click.echo(heading(figure))
        if figure.published:
            click.echo(f"({published(figure)})")
        _print_table(figure.columns, shown_rows(figure))
        if figure.comparisons:
            _print_table(COMPARED, compared_rows(figure))
        for note in (*figure.reasons, *figure.notes):
            click.echo(textwrap.fill(note, _WIDTH, initial_indent="- ", subsequent_indent="  "))
    if any(figure.comparisons for figure in figures):
        click.echo(f"\n{textwrap.fill(NOT_BLIND, _WIDTH)}")


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = plain_table()
    for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
        is_text = any(cell[:1].isalpha() for cell in cells)
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    print_whole(plain_console(), table)


def _shown(cell: str | int | float | None, is_share: bool) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if is_share:
        return f"{100 * cell:.1f}%"
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.4g}"
