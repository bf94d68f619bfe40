"""Draws a plot as inline SVG by matplotlib: axes and marks only, titles and legends are HTML."""

from __future__ import annotations

import io
import re
import warnings
from html import escape

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from prefix_cache.html_report import palette
from prefix_cache.html_report.plots import BarPlot, LinePlot

# Width and height in CSS pixels: for a page that is wide, and for a telephone.
WIDE = (820, 340)
NARROW = (358, 290)

_POINTS_PER_INCH = 72  # SVG's unit is then a CSS pixel where the drawing is not scaled
_FONT_SIZE = 12.0
_SIGN_WIDTH = 0.6 * _FONT_SIZE
_BAR_ROOM = 0.72
_FEWEST_GROUPS = 4  # fewer stand in as much room, so that bars are no walls
_STEPS = [1, 2, 2.5, 5, 10]
# The same in every drawing, and nothing refers to them.
_COUNTED_ID = re.compile(r' id="[\w.]+_\d+"')


def draw(plot: LinePlot | BarPlot, size: tuple[int, int], salt: str) -> str:
    """Return the plot as an ``svg`` element; equal plots, sizes and salts give equal text.

    ``salt`` keeps the ids of several drawings on one page apart.
    """
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not what the user has set for plots of their own
        matplotlib.rcParams.update(
            {
                "font.size": _FONT_SIZE,
                "svg.fonttype": "none",
                "svg.hashsalt": salt,
                "text.parse_math": False,
            }
        )
        width, height = size
        figure = Figure((width / _POINTS_PER_INCH, height / _POINTS_PER_INCH), layout="constrained")
        axes = figure.add_subplot()
        _frame(axes, plot.y_percent)
        if isinstance(plot, LinePlot):
            _draw_lines(axes, plot, width)
        else:
            _draw_bars(axes, plot, width)
        return _inline(figure, plot.title)


def _frame(axes: Axes, y_percent: bool) -> None:
    for side in ("top", "left", "right"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(palette.MUTED)
    axes.patch.set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(axis="y", color=palette.RULE, linewidth=1)
    axes.tick_params(colors=palette.MUTED, length=0, pad=6)
    axes.tick_params(axis="x", length=4)
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=_STEPS))
    axes.yaxis.set_major_formatter(_PERCENT if y_percent else _COMPACT)


def _draw_lines(axes: Axes, plot: LinePlot, width: int) -> None:
    for number, line in enumerate(plot.lines):
        axes.plot(
            line.x,
            line.y,
            color=palette.series(number),
            linewidth=2,
            linestyle="--" if line.style == "--" else "-",
            drawstyle="steps-post" if line.style == "steps" else "default",
            marker="o" if line.marks else "",
            markersize=5,
            solid_capstyle="round",
            solid_joinstyle="round",
        )
    axes.margins(x=0.02, y=0.08)
    axes.set_xlabel(plot.x_label, color=palette.MUTED, labelpad=8)
    if plot.log_x:
        axes.set_xscale("log")
        _log_ticks(axes.xaxis)
    else:
        axes.xaxis.set_major_locator(MaxNLocator(8 if width > NARROW[0] else 5, steps=_STEPS))
        axes.xaxis.set_major_formatter(_COMPACT)
    if plot.log_y:
        axes.set_yscale("log")
        _log_ticks(axes.yaxis)
    elif not any(value < 0 for line in plot.lines for value in line.y):
        highest = max((value for line in plot.lines for value in line.y), default=0)
        axes.set_ylim(0, 1.08 * highest or 1)  # lines that hardly rise keep off the upper edge
    _mark_verticals(axes, plot, width)


def _log_ticks(axis: Axis) -> None:
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 1000 else (1,)))
    axis.set_major_formatter(_COMPACT)
    axis.set_minor_formatter(NullFormatter())
    axis.set_tick_params(which="minor", length=0)


def _mark_verticals(axes: Axes, plot: LinePlot, width: int) -> None:
    """Draw lines with their labels above the plot, in as many rows as keep them apart.

    Where one is beyond what the plot shows, it is left out.
    """
    low, high = axes.get_xlim()
    ends: list[float] = []  # of each row, in pixels
    for x, label in sorted(plot.verticals):
        if not low <= x <= high:
            continue
        axes.axvline(x, color=palette.MUTED, linewidth=1, linestyle=(0, (3, 3)))
        share = axes.transAxes.inverted().transform(axes.transData.transform((x, 1)))[0]
        room = len(label) * _SIGN_WIDTH
        start = max(min(share * width - room / 2, width - room), 0)
        row = next((row for row, end in enumerate(ends) if end < start), len(ends))
        ends[row : row + 1] = [start + room + _SIGN_WIDTH]
        axes.annotate(
            label,
            (share, 1),
            xytext=(0, 4 + row * 1.3 * _FONT_SIZE),
            xycoords="axes fraction",
            textcoords="offset points",
            horizontalalignment="left" if share < 0.15 else "right" if share > 0.85 else "center",
            color=palette.MUTED,
            fontsize=_FONT_SIZE - 1,
        )
    axes.set_xlim(low, high)


def _draw_bars(axes: Axes, plot: BarPlot, width: int) -> None:
    positions = range(len(plot.groups))
    bar = _BAR_ROOM if plot.stacked else _BAR_ROOM / max(len(plot.parts), 1)
    below = [0.0] * len(plot.groups)
    for number, values in enumerate(plot.parts.values()):
        shift = 0 if plot.stacked else (number + 0.5) * bar - _BAR_ROOM / 2
        axes.bar(
            [position + shift for position in positions],
            values,
            width=bar,
            bottom=below if plot.stacked else None,
            color=palette.series(number),
            edgecolor=palette.SURFACE,
            linewidth=1,
        )
        below = [low + value for low, value in zip(below, values, strict=True)]
    axes.tick_params(axis="x", length=0)
    spare = max(_FEWEST_GROUPS - len(plot.groups), 0) / 2
    axes.set_xlim(-0.5 - spare, len(plot.groups) - 0.5 + spare)
    crowded = max(map(len, plot.groups), default=0) * _SIGN_WIDTH > width / (len(plot.groups) + 1)
    axes.set_xticks(
        positions,
        plot.groups,
        rotation=35 if crowded else 0,
        horizontalalignment="right" if crowded else "center",
        rotation_mode="anchor",
    )


def _inline(figure: Figure, title: str) -> str:
    written = io.StringIO()
    with warnings.catch_warnings():
        # Only measured with matplotlib's font, which lacks signs; the browser has its own.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None})
    svg = written.getvalue()
    head, tail = svg.index("<svg") + len("<svg"), svg.index("</metadata>") + len("</metadata>")
    said = f'<svg role="img" aria-label="{escape(title)}"'
    svg = said + svg[head : svg.index("<metadata")] + svg[tail:]
    return palette.with_variables(_COUNTED_ID.sub("", svg))


def _compact(value: float, _position: int | None = None) -> str:
    """Return a number as few signs as tell it: 900, 1.5k, 12k, 3M."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= unit:
            return f"{value / unit:.4g}{name}"
    return f"{value:.4g}"


_COMPACT = FuncFormatter(_compact)
_PERCENT = FuncFormatter(lambda share, _position: f"{100 * share:.4g}%")
