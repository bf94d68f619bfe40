"""The paper's figures that a simulation can answer, by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from prefix_cache.errors import InvalidArgument
from prefix_cache.simulate.experiment import Experiment
from prefix_cache.simulate.figures import (
    block_sizes,
    lengths,
    memory,
    one_sequence,
    preemption,
    prefixes,
    sharing,
)
from prefix_cache.simulate.figures.figure import Comparison, Figure


class _Entry(NamedTuple):
    published: str
    make: Callable[[Experiment], Figure]


_FIGURES: Mapping[int, _Entry] = {
    2: _Entry("Figure 1, right", memory.throughput),
    3: _Entry("Figure 2", memory.waste),
    12: _Entry("Figure 11a", lengths.sharegpt),
    13: _Entry("Figure 11b", lengths.alpaca),
    14: _Entry("Figure 12, upper row", one_sequence.latency_sharegpt),
    15: _Entry("Figure 12, lower row", one_sequence.latency_alpaca),
    16: _Entry("Figure 13a", one_sequence.batched_sharegpt),
    17: _Entry("Figure 13b", one_sequence.batched_alpaca),
    18: _Entry("Figure 14, upper row", sharing.sampling_rates),
    19: _Entry("Figure 14, lower row", sharing.beam_rates),
    20: _Entry("Figure 15a", sharing.sampling_memory),
    21: _Entry("Figure 15b", sharing.beam_memory),
    22: _Entry("Figure 16", prefixes.shared_prefix),
    23: _Entry("Figure 17", prefixes.chat),
    25: _Entry("Figure 18b", block_sizes.sharegpt),
    26: _Entry("Figure 19", preemption.recovery),
    27: _Entry("Figure 18b", block_sizes.alpaca),
}
_KERNEL = 24

NUMBERS = tuple(_FIGURES)


def figure(number: int, experiment: Experiment) -> Figure:
    """Return a figure.  Raises InvalidArgument for one that a simulation cannot answer."""
    if number == _KERNEL:
        raise InvalidArgument(
            "figure 24 is the speed of an attention kernel: that is measured on a GPU, and no "
            "simulation answers it",
            figure=number,
        )
    if number not in _FIGURES:
        raise InvalidArgument(
            f"no figure {number}; expected one of {', '.join(map(str, NUMBERS))}", figure=number
        )
    entry = _FIGURES[number]
    return replace(entry.make(experiment), number=number, published=entry.published)


__all__ = ["NUMBERS", "Comparison", "Experiment", "Figure", "figure"]
