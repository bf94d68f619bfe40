"""Getting KV back after a preemption: computed again, or from the host.  Figure 26."""

from __future__ import annotations

import math

from prefix_cache.html_report.plots import Line, LinePlot
from prefix_cache.simulate.experiment import BLOCK_SIZE, Experiment, server
from prefix_cache.simulate.figures import paper
from prefix_cache.simulate.figures.block_sizes import BLOCK_SIZES
from prefix_cache.simulate.figures.figure import Comparison, Figure
from prefix_cache.simulate.lengths import SHAREGPT
from prefix_cache.simulate.preemption import How, Preemption, Victim
from prefix_cache.simulate.server import COPY_S, PCIE_BANDWIDTH
from prefix_cache.simulate.workload import Workload

_NUM_REQUESTS = 300
_TOKENS = 256
_HOWS: tuple[How, ...] = ("recompute", "swap")
_VICTIMS: tuple[Victim, ...] = ("newest", "largest")


def recovery(experiment: Experiment) -> Figure:
    """Recompute and swap by block size, alone and while serving."""
    on = server("opt-13b", "a100-40g")
    load = Workload(lengths=SHAREGPT, num_requests=_NUM_REQUESTS, seed=experiment.seed)
    swap_ms = [2_000 * on.swap_s(-(-_TOKENS // size) * size, size) for size in BLOCK_SIZES]
    recompute_ms = [1_000 * on.prefill_s(_TOKENS)] * len(BLOCK_SIZES)
    crossover = next(
        (
            size
            for size, swap, recompute in zip(BLOCK_SIZES, swap_ms, recompute_ms, strict=True)
            if swap <= recompute
        ),
        None,
    )
    served = {
        (how, size): experiment.serve(
            on, load, math.inf, "paged", block_size=size, preemption=Preemption(how)
        ).requests_per_s
        for how in _HOWS
        for size in BLOCK_SIZES
    }
    return Figure(
        "Recompute against swap by block size, OPT-13B",
        ("block size", "recompute ms", "swap ms", "recompute served", "swap served"),
        [
            (size, recompute, swap, served["recompute", size], served["swap", size])
            for size, recompute, swap in zip(BLOCK_SIZES, recompute_ms, swap_ms, strict=True)
        ],
        [
            LinePlot(
                f"To get the KV of {_TOKENS} tokens back",
                "tokens per block",
                "milliseconds",
                [
                    Line("recompute", BLOCK_SIZES, recompute_ms, marks=True),
                    Line("swap out and in", BLOCK_SIZES, swap_ms, marks=True),
                ],
                log_x=True,
                log_y=True,
                verticals=[(crossover, "crossover")] if crossover else [],
            ),
            LinePlot(
                "Requests served, when memory is short all the time",
                "tokens per block",
                "requests per second",
                [
                    Line(how, BLOCK_SIZES, [served[how, size] for size in BLOCK_SIZES], marks=True)
                    for how in _HOWS
                ],
                log_x=True,
            ),
        ],
        [
            Comparison(
                f"recompute by swap, block of {size}", recompute_ms[0] / swap, low, high, "x", _WHY
            )
            for size, swap in zip(BLOCK_SIZES, swap_ms, strict=True)
            for low, high in [paper.RECOMPUTE_BY_SWAP[size >= BLOCK_SIZE]]
        ],
        [
            f"Swap is as cheap as recompute from blocks of {crossover} tokens on."
            if crossover
            else "Recompute is cheaper at all block sizes.",
            f"Each block is a copy for K and one for V of each layer; one takes "
            f"{COPY_S * 1e6:g} us to start, and {PCIE_BANDWIDTH / 1e9:g} GB/s are copied.",
            *_victims(experiment, load),
        ],
    )


_WHY = (
    "what a copy takes to start and how fast the host is reached are assumed: at 12 GB/s instead "
    "of 25, swap is cheaper from blocks of 64 tokens on, and by an eighth"
)


def _victims(experiment: Experiment, load: Workload) -> list[str]:
    on = server("opt-13b", "a100-40g")
    told = []
    for victim in _VICTIMS:
        outcome = experiment.serve(
            on, load, math.inf, "paged", preemption=Preemption("recompute", victim)
        )
        told.append(
            f"Preempting the {victim} first: {outcome.preemptions} preemptions, "
            f"{outcome.requests_per_s:.2f} requests/s, {outcome.normalised_latency_s:.3f} s per "
            f"token on average and {outcome.normalised_latency_p99_s:.3f} s for 99 % of requests."
        )
    return told
