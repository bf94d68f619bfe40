"""A page with everything that a page can have."""

from __future__ import annotations

from prefix_cache.html_report import BarPlot, Line, LinePlot, Page

SIZES = [2**exponent for exponent in range(4, 17)]


def full_page() -> Page:
    page = Page("What caching saves", "trace.jsonl, 12,031 requests")
    page.facts([("Hit rate", "36.6 %"), ("Prompt tokens", 144_793_823), ("Seconds", 2310.4)])
    page.text("Every request was replayed against caches of all sizes.")
    page.heading("By size")
    page.plot(
        LinePlot(
            "Hit rate by cache size",
            "blocks",
            "share of tokens",
            [
                Line("exact", SIZES, [size / SIZES[-1] for size in SIZES], marks=True),
                Line("sampled", SIZES, [size / SIZES[-1] for size in SIZES], "steps"),
                Line("ceiling", [SIZES[0], SIZES[-1]], [1.0, 1.0], "--"),
            ],
            log_x=True,
            y_percent=True,
            verticals=[(3000, "one node"), (24_000, "eight nodes"), (26_000, "more nodes")],
        ),
        caption="One pass.",
    )
    page.plot(
        BarPlot(
            "KV memory",
            "share",
            ["reserve_max", "pow2", "a name that needs much more room than there is", "paged"],
            {"tokens": [0.2, 0.3, 0.4, 0.96], "reserved": [0.8, 0.7, 0.6, 0.04]},
            y_percent=True,
        )
    )
    page.table(
        ["turn", "prompt", "cached", "hit rate", "why it missed"],
        [[1, 1200, 0, None, "never seen " * 12], [2, 1900, 1696, 0.893, ""]],
        caption="By turn.",
    )
    return page
