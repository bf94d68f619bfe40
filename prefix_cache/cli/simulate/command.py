"""``prefix-cache simulate``: serving on paper GPUs, with contiguous and with paged KV memory."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefix_cache.cli import INTERRUPTED
from prefix_cache.cli.common_options import html_option, json_object_option
from prefix_cache.cli.option_types import SecondsRange
from prefix_cache.cli.simulate.options import SimulateOptions, simulate_options

if TYPE_CHECKING:
    from prefix_cache.html_report import Page
    from prefix_cache.simulate.figures import Figure

_SEED = click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="Of all that is random."
)


@click.group(
    short_help="Simulate serving with contiguous and paged KV memory.",
    epilog="\b\nExamples:\n"
    "  prefix-cache simulate waste\n"
    "  prefix-cache simulate rates --model llama-3.1-8b --gpu h100 --lengths trace.csv.gz\n"
    "  prefix-cache simulate figure 14 --html latency.html\n"
    "  prefix-cache simulate all --html paper.html",
)
def simulate() -> None:
    """Serve a load on GPUs on paper, step by step, and compare ways to manage KV memory.

    Requests come at random, first come, first served; they join and leave at every step, which
    takes as long as the slower of computing and reading memory.  The allocators are reserve_max
    (the longest length is reserved), pow2 (the answer's length is guessed to the next power of
    two), oracle (it is known), these three with one place per sequence, and paged: the block
    cache of this package.
    """


@simulate.command(short_help="Say what KV memory holds, by allocator.")
@simulate_options
@click.option(
    "--rate", type=SecondsRange(1e-6, 1e6), default=2.0, help="Requests a second, at random."
)
@_SEED
@json_object_option
@html_option
def waste(rate: float, seed: int, as_json: bool, html: Path | None, **load: Any) -> None:
    """Say what share of KV memory in use holds tokens, and what the rest is.

    Reserved memory will hold a token that is yet to be generated, internal waste never will.
    External waste is what placement adds, and all that is free while a request waits for memory.
    """
    from prefix_cache.cli.simulate.load import measured_waste

    page = _opened(html, "What KV memory holds")
    measured = measured_waste(SimulateOptions(**load), rate, seed)
    _show([measured.figure], measured.answer if as_json else None, page, html)
    _end(measured.is_partial)


@simulate.command(short_help="Say how many requests a second are sustained, by allocator.")
@simulate_options
@click.option(
    "--latency-bound",
    type=SecondsRange(1e-3, 1e6),
    default=0.2,
    help="Seconds per token of the answer, as the mean of all requests.",
)
@_SEED
@json_object_option
@html_option
def rates(latency_bound: float, seed: int, as_json: bool, html: Path | None, **load: Any) -> None:
    """Find the highest rate of requests at which their mean latency stays under a bound."""
    from prefix_cache.cli.simulate.load import measured_rates

    page = _opened(html, "How many requests are sustained")
    measured = measured_rates(SimulateOptions(**load), latency_bound, seed)
    _show([measured.figure], measured.answer if as_json else None, page, html)
    _end(measured.is_partial)


@simulate.command(short_help="Reproduce one figure of the PagedAttention paper.")
@click.argument("number", type=int)
@_SEED
@json_object_option
@html_option
def figure(number: int, seed: int, as_json: bool, html: Path | None) -> None:
    """Reproduce figure NUMBER of this list, with the paper's numbers beside ours.

    2: throughput by batch; 3: use of memory; 12, 13: lengths; 14, 15: latency by rate; 16, 17:
    requests at a time; 18, 19: samples and beams; 20, 21: what they save; 22: a shared prefix;
    23: chat; 25, 27: block sizes; 26: recompute and swap.  The paper as published numbers them
    otherwise; each figure says how.
    """
    from prefix_cache.cli.simulate.progress import figure_progress
    from prefix_cache.simulate.figures import Experiment
    from prefix_cache.simulate.figures import figure as simulated

    page = _opened(html, f"Figure {number} of the PagedAttention paper, simulated")
    with figure_progress(1) as progress:
        progress.begin(number)
        made = simulated(number, Experiment(seed, progress.count_run))
    _show([made], made.as_json() if as_json else None, page, html)


@simulate.command("all", short_help="Reproduce all figures that a simulation can answer.")
@_SEED
@json_object_option
@html_option
def all_figures(seed: int, as_json: bool, html: Path | None) -> None:
    """Reproduce the figures one after the other, with the paper's numbers beside ours.

    It takes a minute or two of one core.  Ctrl-C ends it, and keeps the figures that are done.
    """
    from prefix_cache.cli.simulate.progress import figure_progress
    from prefix_cache.simulate.figures import NUMBERS, Experiment
    from prefix_cache.simulate.figures import figure as simulated

    page = _opened(html, "The PagedAttention paper, simulated")
    done: list[Figure] = []
    is_stopped = False
    with figure_progress(len(NUMBERS)) as progress:
        try:
            for number in NUMBERS:
                progress.begin(number)
                done.append(simulated(number, Experiment(seed, progress.count_run)))
        except KeyboardInterrupt:
            is_stopped = True
    answer = {
        "seed": seed,
        "partial": is_stopped,
        "figures": [made.as_json() for made in done],
    }
    _show(done, answer if as_json else None, page, html)
    _end(is_stopped)


def _opened(html: Path | None, title: str) -> Page | None:
    """Begin a page where one is wanted, so that a missing extra is told at once."""
    if html is None:
        return None
    from prefix_cache.html_report import Page

    return Page(title, "prefix-cache simulate")


def _end(is_partial: bool) -> None:
    if is_partial:
        click.echo("stopped: what was done until then is all there is", err=True)
        sys.exit(INTERRUPTED)


def _show(
    figures: list[Figure], answer: dict[str, Any] | None, page: Page | None, html: Path | None
) -> None:
    """Print the answer as JSON, or else the figures; fill and write the page."""
    if answer is not None:
        click.echo(json.dumps(answer))
    else:
        from prefix_cache.cli.simulate.report import print_figures

        print_figures(figures)
    if page and html:
        from prefix_cache.cli.simulate.page import fill

        fill(page, figures)
        page.write(html)
