"""How long prompts and answers are: figures 12 and 13."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prefix_cache.html_report.plots import Line, LinePlot
from prefix_cache.simulate.experiment import Experiment
from prefix_cache.simulate.figures.figure import Comparison, Figure
from prefix_cache.simulate.lengths import ALPACA, SHAREGPT, Fitted

_NUM_DRAWN = 4_000
_NUM_BINS = 40
_SHARES = (0.05, 0.5, 0.95, 0.99)


def sharegpt(experiment: Experiment) -> Figure:
    """Lengths like those of ShareGPT."""
    return _figure(SHAREGPT, 1_024, experiment)


def alpaca(experiment: Experiment) -> Figure:
    """Lengths like those of Alpaca."""
    return _figure(ALPACA, 256, experiment)


def _figure(lengths: Fitted, longest: int, experiment: Experiment) -> Figure:
    drawn = lengths.draw(_NUM_DRAWN, np.random.default_rng(experiment.seed))
    experiment.on_run()
    sides = {
        "prompt": ([prompt for prompt, _ in drawn], lengths.prompt),
        "answer": ([answer for _, answer in drawn], lengths.answer),
    }
    return Figure(
        f"Lengths like those of {lengths.name}",
        ("side", "mean", "p5", "median", "p95", "p99"),
        [
            (name, float(np.mean(values)), *map(float, np.quantile(values, _SHARES)))
            for name, (values, _) in sides.items()
        ],
        [
            LinePlot(
                f"Lengths like those of {lengths.name}",
                "tokens",
                "share of requests",
                [_histogram(name, values, longest) for name, (values, _) in sides.items()],
                y_percent=True,
            )
        ],
        [
            Comparison(
                f"mean {name} tokens",
                float(np.mean(values)),
                side.mean,
                side.mean,
                why=f"{_NUM_DRAWN:,} lengths at random",
            )
            for name, (values, side) in sides.items()
        ],
        [
            f"{name.capitalize()}s: a log-normal distribution of deviation {side.sigma:g}, cut off "
            f"below {side.low} and above {side.high:,} tokens, fitted to the published mean."
            for name, (_, side) in sides.items()
        ],
    )


def _histogram(name: str, values: Sequence[int], longest: int) -> Line:
    counts, edges = np.histogram(values, bins=_NUM_BINS, range=(0, longest))
    return Line(name, edges[:-1].tolist(), (counts / len(values)).tolist(), "steps")
