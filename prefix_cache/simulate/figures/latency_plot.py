"""Latency against request rate, as most of the paper's figures plot it."""

from __future__ import annotations

from collections.abc import Mapping

from prefix_cache.html_report.plots import Line, LinePlot
from prefix_cache.simulate.rates import Sweep

_CEILING = 5  # times the bound, above which curves only go up


def latency_plot(title: str, sweeps: Mapping[str, Sweep], bound_s: float) -> LinePlot:
    """Return the curves of sweeps by name."""
    lines = []
    for name, sweep in sweeps.items():
        points = [
            (rate, outcome.normalised_latency_s)
            for rate, outcome in sweep.outcomes.items()
            if outcome.normalised_latency_s < _CEILING * bound_s
        ]
        lines.append(Line(name, [r for r, _ in points], [s for _, s in points], marks=True))
    return LinePlot(title, "requests per second", "seconds per token of the answer", lines)


def told_of_highest(bound_s: float) -> str:
    """Return what the highest rate is, for people."""
    return (
        f"The highest rate has a mean of at most {bound_s:g} s per token of the answer, and is not "
        "above what the server does while all requests wait."
    )
