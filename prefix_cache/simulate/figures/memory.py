"""What memory is used for, and what a larger batch brings: figures 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping

from prefix_cache.html_report.plots import BarPlot, Line, LinePlot
from prefix_cache.simulate.allocators import ALLOCATORS
from prefix_cache.simulate.experiment import Experiment, server
from prefix_cache.simulate.figures.figure import Comparison, Figure
from prefix_cache.simulate.figures.paper import TOKENS_SHARE
from prefix_cache.simulate.lengths import SHAREGPT
from prefix_cache.simulate.outcome import PARTS
from prefix_cache.simulate.workload import Workload

_RATE = 2.0
_NUM_REQUESTS = 1_000
_BATCHES = (1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40)
"""Up to what fits of sequences of mean length."""


def throughput(experiment: Experiment) -> Figure:
    """Tokens a second against the number of requests that run at the same time."""
    on = server("opt-13b", "a100-40g")
    mean_context = int(SHAREGPT.prompt.mean + SHAREGPT.answer.mean / 2)
    batches = [batch for batch in _BATCHES if batch * mean_context <= on.num_slots]
    tokens_per_s = [
        batch / on.step_s(new_tokens=batch, context_tokens=batch * mean_context)
        for batch in batches
    ]
    fits = {
        name: experiment.serve(
            on,
            Workload(lengths=SHAREGPT, num_requests=_NUM_REQUESTS, seed=experiment.seed),
            float("inf"),
            name,
        ).requests_batched
        for name in ALLOCATORS
    }
    gain = tokens_per_s[-1] / tokens_per_s[0] / batches[-1]
    return Figure(
        "Throughput grows with the batch until KV memory is full",
        ("batch", "tokens per s"),
        list(zip(batches, tokens_per_s, strict=True)),
        [
            LinePlot(
                "Throughput against batch size, OPT-13B on A100-40G",
                "requests in a batch",
                "tokens per second",
                [Line("decode", batches, tokens_per_s)],
                verticals=[(fit, name) for name, fit in fits.items()],
            )
        ],
        notes=[
            f"{batches[-1]} requests of {mean_context} tokens together are answered at "
            f"{100 * gain:.0f} % of the speed of one alone: weights are read once for all.",
            "The marks are the requests that each allocator keeps in memory when many wait.",
        ],
    )


def waste(experiment: Experiment) -> Figure:
    """Share of KV memory by use, for each allocator."""
    on = server("opt-13b", "a100-40g")
    load = Workload(lengths=SHAREGPT, num_requests=_NUM_REQUESTS, seed=experiment.seed)
    shares = {name: experiment.serve(on, load, _RATE, name).shares for name in ALLOCATORS}
    return Figure(
        f"What KV memory in use holds: OPT-13B, sharegpt-like lengths, {_RATE:g} requests/s",
        ("allocator", *PARTS),
        [(name, *share.values()) for name, share in shares.items()],
        [waste_plot("KV memory in use", shares)],
        [
            Comparison(
                f"tokens, {name}",
                shares[name]["tokens"],
                TOKENS_SHARE[name],
                TOKENS_SHARE[name],
                "%",
                _WHY_PAGED if name == "paged" else _WHY_CONTIGUOUS,
            )
            for name in ALLOCATORS
        ],
        [PARTS_ARE],
        PARTS,
    )


def waste_plot(title: str, shares: Mapping[str, Mapping[str, float]]) -> BarPlot:
    """Return bars of the shares of memory by ``PARTS``, of allocators by name."""
    return BarPlot(
        title,
        "share of KV memory in use",
        list(shares),
        {part: [share[part] for share in shares.values()] for part in PARTS},
        y_percent=True,
    )


PARTS_ARE = (
    "Reserved memory will hold a token that is yet to come, internal waste never will; external "
    "waste is what placement adds, and all that is free while a request waits for memory."
)
_WHY_CONTIGUOUS = "lengths may be spread otherwise in the data set: here they are drawn"
_WHY_PAGED = (
    "free memory counts only while a request waits for some, which is seldom at this rate; were "
    "memory short all the time, it would be 97 %"
)
