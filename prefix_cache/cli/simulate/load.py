"""Serves the load of the options with each allocator, and makes a figure of what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from prefix_cache.cli.simulate.lengths import lengths_of
from prefix_cache.cli.simulate.options import SimulateOptions
from prefix_cache.cli.terminal.progress import progress_bars
from prefix_cache.simulate.allocators import ALLOCATORS
from prefix_cache.simulate.experiment import Experiment, server
from prefix_cache.simulate.figures import Figure
from prefix_cache.simulate.figures.latency_plot import latency_plot, told_of_highest
from prefix_cache.simulate.figures.memory import PARTS_ARE, waste_plot
from prefix_cache.simulate.figures.paper import TOKENS_SHARE
from prefix_cache.simulate.outcome import PARTS
from prefix_cache.simulate.server import Server
from prefix_cache.simulate.workload import Workload

Result = TypeVar("Result")

_OF_THE_PAPER = ("opt-13b", "a100-40g", "sharegpt")
_PAPER = "paper: its share of tokens, known when the time over which this is a mean was chosen."


class Measured(NamedTuple):
    """What was found: for people, and as JSON; ``is_partial``: Ctrl-C ended it."""

    figure: Figure
    answer: dict[str, Any]
    is_partial: bool


def measured_waste(options: SimulateOptions, rate: float, seed: int) -> Measured:
    """Serve the load at a rate, and say what memory held."""
    on, load = _stage(options, seed)
    experiment = Experiment(seed)
    outcomes = _by_allocator(
        lambda name: experiment.serve(on, load, rate, name, block_size=options.block_size)
    )
    asked = (options.model, options.gpu, options.lengths)
    told: Mapping[str, float | None] = (
        TOKENS_SHARE if asked == _OF_THE_PAPER else dict.fromkeys(ALLOCATORS)
    )
    shares = {name: outcome.shares for name, outcome in outcomes.items()}
    figure = Figure(
        f"What KV memory in use holds: {_described(options, on)}, {rate:g} requests/s",
        ("allocator", *PARTS, "paper", "batched"),
        [
            (name, *shares[name].values(), told[name], outcome.requests_batched)
            for name, outcome in outcomes.items()
        ],
        [waste_plot("KV memory in use", shares)],
        notes=[PARTS_ARE, *([_PAPER] if told is TOKENS_SHARE else [])],
        shares=[*PARTS, "paper"],
    )
    answer = {
        **_asked(options, on, seed),
        "rate": rate,
        "allocators": [
            {
                "allocator": name,
                **{f"{part}_share": share for part, share in shares[name].items()},
                "paper_tokens_share": told[name],
                "requests_batched": outcome.requests_batched,
                "first_token_s": outcome.first_token_s,
                "normalised_latency_s": outcome.normalised_latency_s,
                "preemptions": outcome.preemptions,
            }
            for name, outcome in outcomes.items()
        ],
    }
    return Measured(figure, answer, len(outcomes) < len(ALLOCATORS))


def measured_rates(options: SimulateOptions, latency_bound_s: float, seed: int) -> Measured:
    """Find the highest rate that each allocator sustains."""
    on, load = _stage(options, seed)
    experiment = Experiment(seed, bound_s=latency_bound_s)
    sweeps = _by_allocator(
        lambda name: experiment.sweep(on, load, name, block_size=options.block_size)
    )
    gains = {
        name: sweeps["paged"].highest / found.highest if "paged" in sweeps else None
        for name, found in sweeps.items()
    }
    figure = Figure(
        f"Requests sustained: {_described(options, on)}",
        ("allocator", "highest rate", "paged by it", "batched"),
        [
            (name, found.highest, gains[name], found.at_highest.requests_batched)
            for name, found in sweeps.items()
        ],
        [latency_plot("Latency against request rate", sweeps, latency_bound_s)],
        notes=[told_of_highest(latency_bound_s)],
    )
    answer = {
        **_asked(options, on, seed),
        "latency_bound_s": latency_bound_s,
        "allocators": [
            {
                "allocator": name,
                "highest_rate": found.highest,
                "paged_by_it": gains[name],
                "requests_batched": found.at_highest.requests_batched,
                "curve": [
                    {"rate": rate, "normalised_latency_s": outcome.normalised_latency_s}
                    for rate, outcome in found.outcomes.items()
                ],
            }
            for name, found in sweeps.items()
        ],
    }
    return Measured(figure, answer, len(sweeps) < len(ALLOCATORS))


def _by_allocator(run: Callable[[str], Result]) -> dict[str, Result]:
    """Run with each allocator; Ctrl-C ends it, and keeps those that are done."""
    done: dict[str, Result] = {}
    with progress_bars(ALLOCATORS, 1) as advance:
        try:
            for name in ALLOCATORS:
                done[name] = run(name)
                advance(name)
        except KeyboardInterrupt:
            if not done:
                raise
    return done


def _stage(options: SimulateOptions, seed: int) -> tuple[Server, Workload]:
    on = server(options.model, options.gpu, options.gpus, options.max_length)
    load = Workload(
        lengths=lengths_of(options),
        num_requests=options.requests,
        seed=seed,
        max_length=options.max_length,
    )
    return on, load


def _described(options: SimulateOptions, on: Server) -> str:
    cards = on.gpu.name if on.num_gpus == 1 else f"{on.num_gpus} x {on.gpu.name}"
    return f"{on.shape.name} on {cards} ({on.num_slots:,} tokens of KV), {options.lengths} lengths"


def _asked(options: SimulateOptions, on: Server, seed: int) -> dict[str, Any]:
    return {
        "model": on.shape.name,
        "gpu": on.gpu.name,
        "gpus": on.num_gpus,
        "num_slots": on.num_slots,
        "lengths": options.lengths,
        "requests": options.requests,
        "seed": seed,
    }
