"""Samples and beams of one prompt share its KV: figures 18 to 21."""

from __future__ import annotations

from collections.abc import Mapping

from prefix_cache.html_report.plots import Line, LinePlot
from prefix_cache.simulate.beams import LOSS
from prefix_cache.simulate.experiment import Experiment, server
from prefix_cache.simulate.figures import paper
from prefix_cache.simulate.figures.figure import Comparison, Figure
from prefix_cache.simulate.figures.latency_plot import latency_plot
from prefix_cache.simulate.lengths import ALPACA, SHAREGPT, Fitted
from prefix_cache.simulate.serving import MAX_RUNNING
from prefix_cache.simulate.workload import Workload

_WIDTHS = (2, 4, 6)
_COMPARED = ("reserve_max", "oracle", "paged")
# By width: many times as many as run at the same time.
_NUM_REQUESTS = {1: 2_000, 2: 1_500, 4: 1_000, 6: 1_000}
# Low enough that all run at once: what is shared does not depend on it.
_RATES = {ALPACA.name: 4.0, SHAREGPT.name: 0.3}
_NUM_MEASURED = {ALPACA.name: 300, SHAREGPT.name: 120}
_BEAM_NOTE = (
    f"At each step a beam is dropped for a second continuation of another one with a chance of "
    f"{LOSS:g}: fitted to what 2, 4 and 6 beams saved on Alpaca, of which none is a check."
)

_WHY_BEAMS = "how often beams branch is fitted to the memory that they saved"
_WHY_ONE = (
    "places of powers of two are larger than what the oracle asks for: were they not, it would be "
    "1.1x"
)


def sampling_rates(experiment: Experiment) -> Figure:
    """Latency by rate with several samples."""
    return _rates("samples", experiment, beams=False)


def beam_rates(experiment: Experiment) -> Figure:
    """Latency by rate with beam search."""
    return _rates("beams", experiment, beams=True)


def sampling_memory(experiment: Experiment) -> Figure:
    """Memory that samples save by sharing their prompt."""
    return _memory(
        "samples",
        paper.SAVED_BY_SAMPLES,
        paper.SAVED_BY_SAMPLES_SHAREGPT,
        experiment,
        beams=False,
    )


def beam_memory(experiment: Experiment) -> Figure:
    """Memory that beams save by sharing what they have in common."""
    return _memory(
        "beams",
        paper.SAVED_BY_BEAMS,
        paper.SAVED_BY_BEAMS_SHAREGPT,
        experiment,
        beams=True,
    )


def _rates(what: str, experiment: Experiment, *, beams: bool) -> Figure:
    on = server("opt-13b", "a100-40g")
    rows, plots, gains = [], [], {}
    for width in (1, *_WIDTHS):
        load = Workload(
            lengths=ALPACA,
            num_requests=_NUM_REQUESTS[width],
            seed=experiment.seed,
            width=width,
            beams=beams,
        )
        sweeps = {by: experiment.sweep(on, load, by) for by in _COMPARED}
        paged = sweeps["paged"].highest
        gains[width] = paged / sweeps["oracle"].highest
        rows += [(width, by, found.highest, paged / found.highest) for by, found in sweeps.items()]
        if width > 1:
            plots.append(latency_plot(f"{width} {what}", sweeps, experiment.bound_s))
    told = [(1, paper.GAIN_ONE_SEQUENCE)] + ([(6, paper.GAIN_SIX_BEAMS)] if beams else [])
    return Figure(
        f"Latency against request rate with several {what}, OPT-13B, alpaca-like lengths",
        (what, "allocator", "highest rate", "paged by it"),
        rows,
        plots,
        [
            Comparison(
                f"{width} {what if width > 1 else what[:-1]}: paged by oracle",
                gains[width],
                gain,
                gain,
                "x",
                _WHY_BEAMS if width > 1 else _WHY_ONE,
            )
            for width, gain in told
        ],
        [
            "Paged by oracle, by width: "
            + ", ".join(f"{width}: {gain:.2f}x" for width, gain in gains.items())
            + ".  In the paper it grows with the width; here it hardly does from two on.",
            f"At most {MAX_RUNNING} sequences run at a time, which changes little.",
            *([_BEAM_NOTE] if beams else []),
        ],
    )


def _memory(
    what: str,
    told: Mapping[int, float],
    told_sharegpt: tuple[float, float],
    experiment: Experiment,
    *,
    beams: bool,
) -> Figure:
    on = server("opt-13b", "a100-40g")

    def saved(lengths: Fitted, width: int) -> float:
        load = Workload(
            lengths=lengths,
            num_requests=_NUM_MEASURED[lengths.name],
            seed=experiment.seed,
            width=width,
            beams=beams,
        )
        return experiment.serve(on, load, _RATES[lengths.name], "paged").saved_by_sharing

    alpaca = {width: saved(ALPACA, width) for width in _WIDTHS}
    sharegpt = {width: saved(SHAREGPT, width) for width in _WIDTHS}
    why = (
        "one chance of branching does not suit both lengths: 0.01 would give what ShareGPT saved, "
        "and too little on Alpaca"
        if beams
        else "lengths are drawn, and what is saved differs by two points or more between seeds"
    )
    by_rule = (
        [] if beams else [Line("0.12 (n - 1) / n", _WIDTHS, [_by_rule(n) for n in _WIDTHS], "--")]
    )
    return Figure(
        f"Memory saved by sharing among {what}, OPT-13B",
        (what, "alpaca", "paper alpaca", "sharegpt"),
        [(width, alpaca[width], told[width], sharegpt[width]) for width in _WIDTHS],
        [
            LinePlot(
                f"Blocks saved by sharing among {what}",
                what,
                "share of the blocks without sharing",
                [
                    Line("alpaca-like", _WIDTHS, list(alpaca.values()), marks=True),
                    Line("paper, alpaca", _WIDTHS, list(told.values()), "--", marks=True),
                    Line("sharegpt-like", _WIDTHS, list(sharegpt.values()), marks=True),
                    *by_rule,
                ],
                y_percent=True,
            )
        ],
        [
            Comparison(f"alpaca, {width} {what}", alpaca[width], told[width], told[width], "%", why)
            for width in _WIDTHS
        ]
        + [
            Comparison(f"sharegpt, {width} {what}", sharegpt[width], end, end, "%", why)
            for width, end in zip((_WIDTHS[0], _WIDTHS[-1]), told_sharegpt, strict=True)
        ],
        [_BEAM_NOTE]
        if beams
        else [
            "Full blocks of the prompt are shared; its last, partial one is copied when the "
            "samples part.  With a prompt of 12 % of KV, 0.12 (n - 1) / n is saved."
        ],
        ["alpaca", "paper alpaca", "sharegpt"],
    )


def _by_rule(width: int) -> float:
    return 0.12 * (width - 1) / width
