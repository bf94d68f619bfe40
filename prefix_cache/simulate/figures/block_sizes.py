"""The size of a block: figures 25 and 27."""

from __future__ import annotations

from prefix_cache.html_report.plots import Line, LinePlot
from prefix_cache.simulate.experiment import BLOCK_SIZE, Experiment, server
from prefix_cache.simulate.figures.figure import Comparison, Figure
from prefix_cache.simulate.lengths import ALPACA, SHAREGPT, Fitted
from prefix_cache.simulate.server import BLOCK_READ_TOKENS
from prefix_cache.simulate.workload import Workload

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64)
_NUM_REQUESTS = {SHAREGPT.name: 300, ALPACA.name: 1_500}
_NEAR = 0.05


def sharegpt(experiment: Experiment) -> Figure:
    """Block sizes with long, heavy-tailed lengths."""
    return _figure(SHAREGPT, experiment)


def alpaca(experiment: Experiment) -> Figure:
    """Block sizes with short, narrow lengths."""
    return _figure(ALPACA, experiment)


def _figure(lengths: Fitted, experiment: Experiment) -> Figure:
    on = server("opt-13b", "a100-40g")
    load = Workload(lengths=lengths, num_requests=_NUM_REQUESTS[lengths.name], seed=experiment.seed)
    most = {
        size: experiment.serve(on, load, float("inf"), "paged", block_size=size)
        for size in BLOCK_SIZES
    }
    rate = 0.9 * most[BLOCK_SIZE].requests_per_s
    at_rate = {
        size: experiment.serve(on, load, rate, "paged", block_size=size) for size in BLOCK_SIZES
    }
    best = max(outcome.requests_per_s for outcome in most.values())
    near = [size for size, found in most.items() if found.requests_per_s > (1 - _NEAR) * best]
    return Figure(
        f"Block size, OPT-13B, {lengths.name}-like lengths",
        ("block size", "latency", "at most", "tokens"),
        [
            (
                size,
                at_rate[size].normalised_latency_s,
                most[size].requests_per_s,
                most[size].shares["tokens"],
            )
            for size in BLOCK_SIZES
        ],
        [
            LinePlot(
                f"Latency by block size at {rate:.3g} requests/s, {lengths.name}-like lengths",
                "tokens per block",
                "seconds per token of the answer",
                [
                    Line(
                        "paged",
                        BLOCK_SIZES,
                        [found.normalised_latency_s for found in at_rate.values()],
                        marks=True,
                    )
                ],
                log_x=True,
            )
        ],
        [
            Comparison(
                f"throughput with {BLOCK_SIZE} by that of the best",
                most[BLOCK_SIZE].requests_per_s / best,
                1 - _NEAR,
                1.0,
                "x",
                "what reading a block costs is one number here, taken from a block of 16",
            )
        ],
        [
            f"Within {_NEAR:.0%} of the best: {', '.join(map(str, near))}.  Small blocks are slow "
            f"to read, each as {BLOCK_READ_TOKENS} tokens more than it has; large ones hold fewer "
            "tokens.",
            f"Latency at {rate:.3g} requests/s, nine tenths of what blocks of {BLOCK_SIZE} take "
            "at most.",
        ],
        ["tokens"],
    )
