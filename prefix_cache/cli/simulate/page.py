"""The pages of ``prefix-cache simulate --html``."""

from __future__ import annotations

from collections.abc import Sequence

from prefix_cache.cli.simulate.report import (
    COMPARED,
    NOT_BLIND,
    compared_rows,
    heading,
    published,
    shown_rows,
)
from prefix_cache.html_report import Page
from prefix_cache.simulate import server
from prefix_cache.simulate.figures import Figure


def fill(page: Page, figures: Sequence[Figure]) -> None:
    """Add the figures, and what all of them take for granted."""
    compared = [one for figure in figures for one in figure.comparisons]
    if len(figures) > 1:
        page.facts(
            [
                ("figures", len(figures)),
                ("numbers of the paper", len(compared)),
                ("as the paper tells", sum(one.is_as_told for one in compared)),
            ]
        )
    if compared:
        page.text(NOT_BLIND)
    for figure in figures:
        page.heading(heading(figure))
        if figure.published:
            page.text(f"{published(figure)}.")
        for plot in figure.plots:
            page.plot(plot)
        numbers = ["l" if isinstance(cell, str) else "r" for cell in figure.rows[0]]
        page.table(figure.columns, shown_rows(figure), align="".join(numbers))
        if figure.comparisons:
            page.table(COMPARED, compared_rows(figure), align="lrrl")
        for reason in figure.reasons:
            page.text(f"Why it differs: {reason}")
        for note in figure.notes:
            page.text(note)
    page.heading("What the simulation takes for granted")
    for assumption in ASSUMPTIONS:
        page.text(assumption)


ASSUMPTIONS = (
    f"Matrix products reach {server.COMPUTE_SHARE:.0%} of a card's peak throughput, reads of "
    f"weights and KV {server.BANDWIDTH_SHARE:.0%} of its bandwidth; a step takes the longer of "
    f"both, and {1000 * server.STEP_S:g} ms for all else, reductions between GPUs among it.",
    f"Reading a block of KV takes as long as {server.BLOCK_READ_TOKENS} tokens more than it has.",
    "Weights and activations leave to KV what 90 % of memory has beside the weights.",
    "A step computes the prompts that are taken in, whole, and one token of every sequence that "
    "runs.  Requests are taken in as they came, never past one that waits.",
    "Places of contiguous allocators are powers of two, as a buddy allocator gives them.",
)
