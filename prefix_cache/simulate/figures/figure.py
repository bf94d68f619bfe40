"""What a simulated figure shows, and how far it is from the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prefix_cache.html_report.plots import BarPlot, LinePlot

Cell = str | int | float | None
Unit = Literal["%", "x", ""]


@dataclass(frozen=True)
class Comparison:
    """Our number beside the paper's, which is from ``low`` to ``high``.

    ``unit`` "%" is for shares from 0 to 1, "x" for ratios.  ``why`` is what makes the difference.
    """

    what: str
    ours: float
    low: float
    high: float
    unit: Unit = ""
    why: str = ""

    @property
    def difference(self) -> float:
        """How far ours is outside the paper's range: points for shares, else of its nearer end."""
        end = min(max(self.ours, self.low), self.high)
        return self.ours - end if self.unit == "%" else self.ours / end - 1

    @property
    def is_as_told(self) -> bool:
        """Whether ours is in the paper's range, to what its figures can be read by."""
        return abs(self.difference) < (0.005 if self.unit == "%" else 0.02)

    def shown(self, value: float) -> str:
        """Return a number with its unit, for people."""
        if self.unit == "%":
            return f"{100 * value:.1f} %"
        return f"{value:.2f}{'x' if self.unit else ''}"

    @property
    def paper(self) -> str:
        """The paper's number or range, for people."""
        ends = self.shown(self.low), self.shown(self.high)
        return ends[0] if self.low == self.high else " to ".join(ends)

    @property
    def verdict(self) -> str:
        """By how much it differs, for people."""
        if self.is_as_told:
            return "as told"
        off = 100 * abs(self.difference)
        by = f"{off:.1f} points" if self.unit == "%" else f"{off:.0f} %"
        side = "above" if self.difference > 0 else "below"
        return f"{by} {side}"

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; ``difference`` as the property says."""
        return {
            "what": self.what,
            "ours": self.ours,
            "paper_low": self.low,
            "paper_high": self.high,
            "difference": self.difference,
            "why": None if self.is_as_told else self.why,
        }


@dataclass(frozen=True)
class Figure:
    """A table, plots, and comparisons with the paper.

    ``shares`` are the columns whose numbers are shares from 0 to 1; ``notes`` are what is assumed
    and what is seen.  ``number`` is that of the list of figures here, and ``published`` says
    where the paper has it; both are for figures of the paper only.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    plots: Sequence[LinePlot | BarPlot] = ()
    comparisons: Sequence[Comparison] = ()
    notes: Sequence[str] = ()
    shares: Sequence[str] = ()
    number: int | None = None
    published: str = ""

    @property
    def reasons(self) -> list[str]:
        """Why comparisons differ, each reason once after what it is for."""
        differing: dict[str, list[str]] = {}
        for one in self.comparisons:
            if not one.is_as_told:
                differing.setdefault(one.why, []).append(one.what)
        return [f"{'; '.join(whats)}: {why}." for why, whats in differing.items()]

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON; a row is an object with the columns' names."""
        names = [name.replace(" ", "_") for name in self.columns]
        return {
            "figure": self.number,
            "title": self.title,
            "published": self.published,
            "rows": [dict(zip(names, row, strict=True)) for row in self.rows],
            "comparisons": [comparison.as_json() for comparison in self.comparisons],
            "notes": list(self.notes),
        }
