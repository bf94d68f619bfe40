"""The page of ``prefix-cache size``."""

from __future__ import annotations

from prefix_cache.cli.size.report import context_rows, verdict
from prefix_cache.html_report import BarPlot, Line, LinePlot, Page
from prefix_cache.sizing import Sizing, show_bytes
from prefix_cache.sizing.byte_sizes import GIB
from prefix_cache.sizing.explanation import assumptions, span, steps

_NUM_POINTS = 100


def sizing_page(sizing: Sizing) -> Page:
    """Return the page: the answer, plots, the calculation and what it rests on."""
    setup, stage = sizing.setup, sizing.stage
    page = Page(
        f"KV memory of {setup.shape.name}",
        f"KV in {setup.kv_dtype}, weights in {setup.dtype}, conversations of {setup.context:,} "
        f"tokens, {setup.num_gpus} GPU" + ("s" if setup.num_gpus > 1 else ""),
    )
    fixed = stage.fixed_bytes(setup.context)
    facts = [
        ("KV per token", show_bytes(stage.bytes_per_token(setup.context))),
        *([("Fixed per conversation", show_bytes(fixed))] if fixed else []),
        ("One conversation", show_bytes(stage.sequence_bytes(setup.context))),
    ]
    if sizing.low and sizing.high:
        low, high = sizing.low, sizing.high
        facts += [
            ("Tokens that fit", span(low.tokens, high.tokens)),
            ("Conversations that fit", span(low.conversations, high.conversations)),
        ]
    page.facts(facts)
    for line in verdict(sizing):
        page.text(line)
    page.heading("By context")
    page.plot(_kv_by_context(sizing))
    rows = context_rows(sizing)
    page.table(list(rows[0]), [list(row.values()) for row in rows], align="r" * len(rows[0]))
    if sizing.low and sizing.high:
        page.heading("Where the memory of one GPU goes")
        page.plot(_memory(sizing))
    page.heading("The calculation")
    page.table(["what", "how", "result"], steps(sizing), align="llr")
    page.heading("What it takes for granted")
    for assumption in assumptions(sizing):
        page.text(f"{assumption[0].upper()}{assumption[1:]}.")
    return page


def _kv_by_context(sizing: Sizing) -> LinePlot:
    setup, stage = sizing.setup, sizing.stage
    longest = max(setup.shape.max_context or 0, setup.context)
    contexts = [max(longest * point // _NUM_POINTS, 1) for point in range(1, _NUM_POINTS + 1)]
    lines = [
        Line("one request", contexts, [stage.sequence_bytes(c) / GIB for c in contexts]),
    ]
    if sizing.low and sizing.high:
        ends = [contexts[0], contexts[-1]]
        lines += [
            Line("memory, at least", ends, [sizing.low.kv_bytes / GIB] * 2, "--"),
            Line("memory, at best", ends, [sizing.high.kv_bytes / GIB] * 2, "--"),
        ]
    return LinePlot(
        "KV of one request" + (", and the memory there is for all" if sizing.low else ""),
        "tokens",
        "GiB on one GPU",
        lines,
        verticals=[(setup.context, "context")],
    )


def _memory(sizing: Sizing) -> BarPlot:
    setup, low, high = sizing.setup, sizing.low, sizing.high
    assert setup.memory_bytes is not None
    assert low is not None
    assert high is not None
    budget = setup.memory_bytes * setup.utilization
    weights = sizing.stage.weights_bytes
    parts: dict[str, list[float]] = {
        "weights": [weights, weights],
        "overhead": [budget - weights - end.kv_bytes for end in (low, high)],
        "KV": [low.kv_bytes, high.kv_bytes],
        "left unused": [setup.memory_bytes - budget] * 2,
    }
    return BarPlot(
        f"{show_bytes(setup.memory_bytes)}, of which {setup.utilization:.0%} is used",
        "GiB",
        ["at least", "at best"],
        {name: [value / GIB for value in values] for name, values in parts.items()},
    )
