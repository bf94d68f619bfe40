"""One sequence per request: latency by rate, and how many run at a time.  Figures 14 to 17."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping

from prefix_cache.html_report.plots import BarPlot
from prefix_cache.simulate.allocators import ALLOCATORS
from prefix_cache.simulate.experiment import Experiment, server
from prefix_cache.simulate.figures import paper
from prefix_cache.simulate.figures.figure import Comparison, Figure
from prefix_cache.simulate.figures.latency_plot import latency_plot, told_of_highest
from prefix_cache.simulate.lengths import ALPACA, SHAREGPT, Fitted
from prefix_cache.simulate.serving import MAX_RUNNING
from prefix_cache.simulate.workload import Workload

_SERVERS = {
    "OPT-13B": ("opt-13b", "a100-40g", 1),
    "OPT-66B": ("opt-66b", "a100-40g", 4),
    "OPT-175B": ("opt-175b", "a100-80g", 8),
}
_NUM_REQUESTS = {SHAREGPT.name: 500, ALPACA.name: 2_000}


def latency_sharegpt(experiment: Experiment) -> Figure:
    """Latency by rate with long, heavy-tailed lengths."""
    return _latency(SHAREGPT, experiment)


def latency_alpaca(experiment: Experiment) -> Figure:
    """Latency by rate with short, narrow lengths."""
    return _latency(ALPACA, experiment)


def batched_sharegpt(experiment: Experiment) -> Figure:
    """Requests that run at a time with long, heavy-tailed lengths."""
    return _batched(SHAREGPT, 2.0, paper.BATCHED_SHAREGPT, experiment)


def batched_alpaca(experiment: Experiment) -> Figure:
    """Requests that run at a time with short, narrow lengths."""
    return _batched(ALPACA, 30.0, paper.BATCHED_ALPACA, experiment)


def _load(lengths: Fitted, experiment: Experiment) -> Workload:
    return Workload(lengths=lengths, num_requests=_NUM_REQUESTS[lengths.name], seed=experiment.seed)


def _latency(lengths: Fitted, experiment: Experiment) -> Figure:
    load = _load(lengths, experiment)
    rows, plots, comparisons, gains = [], [], [], []
    for model, (name, card, num_gpus) in _SERVERS.items():
        on = server(name, card, num_gpus)
        sweeps = {by: experiment.sweep(on, load, by) for by in ALLOCATORS}
        highest = {by: found.highest for by, found in sweeps.items()}
        rows += [
            (model, by, rate, highest["paged"] / rate, sweeps[by].at_highest.requests_batched)
            for by, rate in highest.items()
        ]
        plots.append(
            latency_plot(f"{model}, {lengths.name}-like lengths", sweeps, experiment.bound_s)
        )
        gains.append(highest["paged"] / highest["reserve_max"])
        if lengths is SHAREGPT:
            comparisons += _compared(model, highest)
    if lengths is SHAREGPT:
        median = statistics.median(gains)
        what = "paged by reserve_max, median of the models"
        comparisons.append(Comparison(what, median, *paper.THROUGHPUT, "x", _WHY_GAIN))
    return Figure(
        f"Latency against request rate, {lengths.name}-like lengths",
        ("model", "allocator", "highest rate", "paged by it", "batched"),
        rows,
        plots,
        comparisons,
        [
            f"{told_of_highest(experiment.bound_s)}  A load has {load.num_requests:,} requests.",
            *([] if lengths is SHAREGPT else [_ALPACA_NOTE]),
        ],
    )


_ALPACA_NOTE = (
    "The paper gives no numbers here; it tells that the largest model's memory is so large beside "
    "such short requests that the oracle and the power of two come close to paging.  Here at most "
    f"{MAX_RUNNING} sequences run at a time; without that paged would gain 1.1x at most there."
)


_WHY_GAIN = (
    "computing prompts takes as long for all: were it free, paged would sustain 3.2 times the rate "
    "of reserve_max and 1.8 times the oracle's with OPT-175B"
)


def _compared(model: str, highest: Mapping[str, float]) -> list[Comparison]:
    return [
        Comparison(
            f"{model}: paged by {by}",
            highest["paged"] / highest[by],
            *told,
            unit="x",
            why=_WHY_GAIN,
        )
        for by, told in (
            ("reserve_max", paper.RATE_AGAINST_MAX),
            ("oracle", paper.RATE_AGAINST_ORACLE),
        )
    ]


def _batched(
    lengths: Fitted,
    rate: float,
    told: Mapping[str, float],
    experiment: Experiment,
) -> Figure:
    on, load = server("opt-13b", "a100-40g"), _load(lengths, experiment)
    full = {by: experiment.serve(on, load, math.inf, by).requests_batched for by in ALLOCATORS}
    at_rate = {by: experiment.serve(on, load, rate, by).requests_batched for by in ALLOCATORS}
    return Figure(
        f"Requests that run at a time, {lengths.name}-like lengths",
        ("allocator", "memory full", "paper", f"at {rate:g} per s"),
        [(by, count, told[by], at_rate[by]) for by, count in full.items()],
        [
            BarPlot(
                "Requests that run at a time, OPT-13B on A100-40G",
                "requests",
                list(full),
                {"memory full": list(full.values()), "paper": list(told.values())},
                stacked=False,
            )
        ],
        [
            Comparison(
                f"requests batched, {by}",
                count,
                told[by],
                told[by],
                why=_WHY_PAGED if by == "paged" else _WHY_CONTIGUOUS,
            )
            for by, count in full.items()
        ],
        [
            f"The paper's numbers are those at {rate:g} requests a second, which is more than a "
            "contiguous allocator sustains there.  The simulated server is faster: memory is full "
            "here because all requests come at once.  Whoever sustains a rate runs as many as "
            "arrive while one is answered."
        ],
    )


_WHY_CONTIGUOUS = "lengths may be spread otherwise in the data set: here they are drawn"
_WHY_PAGED = "the paper's server may have sustained the rate, its memory not being full"
