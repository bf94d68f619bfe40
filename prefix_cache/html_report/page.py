"""A report as one HTML file: no script, no network, light and dark as the reader's system is."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path

from prefix_cache.errors import InvalidArgument, MissingExtra
from prefix_cache.html_report.palette import NUM_SERIES
from prefix_cache.html_report.plots import BarPlot, LinePlot

Cell = str | int | float | None

# Whatever stands in the page, the browser loads and runs nothing.
_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
"""


class Page:
    """Text, tables and plots in the order in which they are added.

    All text is taken as it is: what looks like HTML in it is shown, not interpreted.  Equal pages
    are equal byte for byte.  Raises MissingExtra at once where plots could not be drawn, so that
    nobody computes for an hour what cannot be shown.
    """

    def __init__(self, title: str, subtitle: str = "") -> None:
        if importlib.util.find_spec("matplotlib") is None:
            raise MissingExtra(
                "HTML pages need matplotlib: pip install 'prefix-cache[report]'", extra="report"
            )
        self._title = title
        self._parts = [f"<header><h1>{escape(title)}</h1>"]
        if subtitle:
            self._parts.append(f'<p class="subtitle">{escape(subtitle)}</p>')
        self._parts.append("</header>")
        self._num_drawings = 0

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, paragraph: str) -> None:
        """Add a paragraph."""
        self._parts.append(f"<p>{escape(paragraph)}</p>")

    def facts(self, facts: Sequence[tuple[str, Cell]]) -> None:
        """Add the few figures that a reader should see first: a label and a value each."""
        shown = (
            f"<div><dt>{escape(label)}</dt><dd>{_shown(value)}</dd></div>" for label, value in facts
        )
        self._parts.append(f'<dl class="facts">{"".join(shown)}</dl>')

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        *,
        caption: str = "",
        align: str = "",
    ) -> None:
        """Add a table that scrolls inside its own box where the page is too narrow.

        ``align`` has an ``l`` or ``r`` per column; by default columns of numbers stand right.
        Raises InvalidArgument for a row or an ``align`` that does not fit the columns.
        """
        for number, row in enumerate(rows):
            if len(row) != len(columns):
                raise InvalidArgument(
                    f"row {number} has {len(row)} cells: expected {len(columns)}, one per column"
                )
        align = align or "".join(map(_alignment, zip(*rows, strict=True))) or "l" * len(columns)
        if len(align) != len(columns) or set(align) - set("lr"):
            raise InvalidArgument(
                f"align {align!r}: expected {len(columns)} letters, each l or r", align=align
            )
        classes = [' class="number"' if letter == "r" else "" for letter in align]
        head = "".join(
            f'<th scope="col"{kind}>{escape(column)}</th>'
            for column, kind in zip(columns, classes, strict=True)
        )
        body = "\n".join(
            "<tr>"
            + "".join(
                f"<td{kind}>{_shown(cell)}</td>" for cell, kind in zip(row, classes, strict=True)
            )
            + "</tr>"
            for row in rows
        )
        self._figure(
            # Focusable: a box that scrolls must do so for the keyboard, too.
            f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody></table></div>",
            caption,
        )

    def plot(self, plot: LinePlot | BarPlot, caption: str = "") -> None:
        """Add a plot, drawn once for wide pages and once for narrow ones."""
        from prefix_cache.html_report.drawing import NARROW, WIDE, draw

        drawings = []
        for name, size in (("wide", WIDE), ("narrow", NARROW)):
            self._num_drawings += 1
            drawing = draw(plot, size, salt=str(self._num_drawings))
            drawings.append(f'<div class="{name}">{drawing}</div>')
        self._figure(
            f"<h3>{escape(plot.title)}</h3>{_legend(plot)}"
            f'<p class="axis">{escape(plot.y_label)}</p>{"".join(drawings)}',
            caption,
        )

    def write(self, path: Path) -> None:
        """Write the page.  Raises OSError where that cannot be done."""
        path.write_text(self._html(), encoding="utf-8")

    def _html(self) -> str:
        style = files("prefix_cache.html_report").joinpath("page.css").read_text("utf-8")
        body = "\n".join(self._parts)
        return (
            f"{_HEAD}<title>{escape(self._title)}</title>\n<style>\n{style}</style>\n</head>\n"
            f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
        )

    def _figure(self, content: str, caption: str) -> None:
        below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
        self._parts.append(f"<figure>{content}{below}</figure>")


def _legend(plot: LinePlot | BarPlot) -> str:
    if len(plot.legend) == 1:
        return ""
    entries = (
        f'<li><i class="{"dashed" if dashed else "solid"}" '
        f'style="color: var(--series-{number % NUM_SERIES})"></i>{escape(name)}</li>'
        for number, (name, dashed) in enumerate(plot.legend)
    )
    return f'<ul class="legend">{"".join(entries)}</ul>'


def _alignment(cells: Sequence[Cell]) -> str:
    known = [cell for cell in cells if cell is not None]
    return "r" if known and not any(isinstance(cell, str) for cell in known) else "l"


def _shown(cell: Cell) -> str:
    if cell is None:
        return "–"
    if isinstance(cell, str):
        return escape(cell)
    return f"{cell:,}" if isinstance(cell, int) else f"{cell:,.4g}"
