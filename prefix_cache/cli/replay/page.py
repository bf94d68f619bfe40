"""The page of ``prefix-cache replay --html``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prefix_cache.cli.replay.table import (
    LOSSES,
    ceiling_lines,
    curve_line,
    percent,
    reported_lines,
    saved_lines,
    where,
)
from prefix_cache.html_report import BarPlot, Line, LinePlot, Page
from prefix_cache.replay.measure.report import Report
from prefix_cache.replay.policies.policy_comparison import Comparison

_MAX_TURNS = 24
_MAX_KINDS = 12


def open_page(name: str) -> Page:
    """Begin the page of a file.  Raises MissingExtra where plots cannot be drawn."""
    return Page(f"Prefix caching of {name}", "prefix-cache replay")


def write_page(page: Page, report: Report, comparisons: Sequence[Comparison], path: Path) -> None:
    """Fill the page and write it."""
    _summary(page, report)
    if report.replay.all.prompt_tokens:
        _turns(page, report)
        _loss(page, report)
        _sizes(page, report)
    if comparisons:
        page.heading("Routing policies")
    whole = [comparison for comparison in comparisons if not comparison.is_partial]
    if len(whole) > 1:
        _fleets(page, whole)
    for comparison in comparisons:
        _policies(page, comparison)
    page.write(path)


def _summary(page: Page, report: Report) -> None:
    replay, source = report.replay, report.source
    totals = replay.all.totals
    page.facts(
        [
            ("Hit rate", percent(totals.hit_rate)),
            ("Hit rate, never evicting", percent(report.ceiling["hit_rate"])),
            ("Tokens cached", totals.cached_tokens),
            ("Tokens prefilled", totals.prefilled_tokens),
        ]
    )
    if report.num_blocks is None:
        cache = f"a cache that never evicts, in blocks of {replay.block_size} tokens"
    else:
        cache = f"a cache of {report.num_blocks:,} blocks of {replay.block_size} tokens"
    stopped = "  Stopped before the end of the file." if report.is_partial else ""
    page.text(
        f"{replay.all.requests:,} requests of {totals.prompt_tokens:,} prompt tokens, from "
        f"{source.name} ({source.format}; tokens are {source.tokens_are}), replayed on {cache}."
        + stopped
    )
    for line in (*ceiling_lines(report), *saved_lines(report), *reported_lines(report)):
        page.text(line)


def _turns(page: Page, report: Report) -> None:
    turns = sorted(report.replay.by_turn.items())[:_MAX_TURNS]
    page.heading("Turn by turn")
    page.plot(
        BarPlot(
            "Tokens of a prompt, by turn",
            "tokens per request",
            [str(turn) for turn, _ in turns],
            {
                "cached": [tally.cached_tokens / tally.requests for _, tally in turns],
                "prefilled": [tally.totals.prefilled_tokens / tally.requests for _, tally in turns],
            },
        ),
        "Mean of all requests that are the first, second ... of their conversation.",
    )


def _loss(page: Page, report: Report) -> None:
    loss = report.replay.loss
    page.heading("Why tokens were prefilled")
    page.table(
        # Numbers stand first: what is cut off on a telephone is the end of a row.
        ("share", "tokens", "because"),
        [
            (percent(tokens / loss.tokens), tokens, LOSSES[part])
            for part, tokens in loss.as_json().items()
            if tokens
        ],
        align="rrl",
        caption=f"Together {loss.tokens:,}: all that was prefilled.",
    )
    if groups := report.divergences():
        page.table(
            ("difference", "in", "requests", "tokens behind it", "the first"),
            [
                (kind, role or "-", group.requests, group.repeated_tokens, where(group.example))
                for kind, role, group in groups[:_MAX_KINDS]
            ],
            caption="What stands where prompts that go on alike differ.",
        )


def _sizes(page: Page, report: Report) -> None:
    points = report.curve()
    sizes = [(str(size), rate) for size, rate in report.block_sizes() if rate is not None]
    page.heading("Another cache")
    enough = report.blocks_for_nearly_all
    verticals = [(float(enough), f"{enough:,} blocks: 95% of all hits")]
    if report.num_blocks is not None:
        verticals.append((float(report.num_blocks), "as replayed"))
    page.plot(
        LinePlot(
            "Hit rate against cache size",
            f"blocks of {report.replay.block_size} tokens",
            "hit rate in tokens",
            [Line("one cache", [p.blocks for p in points], [p.hit_rate for p in points])],
            log_x=True,
            y_percent=True,
            verticals=verticals,
        ),
        curve_line(report),
    )
    page.plot(
        BarPlot(
            "Hit rate against block size",
            "hit rate in tokens",
            [size for size, _ in sizes],
            {"one cache": [rate for _, rate in sizes]},
            y_percent=True,
        ),
        "By tokens per block, of a cache that never evicts."
        if report.num_blocks is None
        else "By tokens per block, of caches of the same memory, where it has room for the longest "
        "request.",
    )


def _fleets(page: Page, comparisons: Sequence[Comparison]) -> None:
    nodes = [comparison.fleet.num_nodes for comparison in comparisons]
    pooled = [comparison.pooled_hit_rate for comparison in comparisons]
    by_policy = zip(*(comparison.results for comparison in comparisons), strict=True)
    page.plot(
        LinePlot(
            "Hit rate against number of nodes",
            f"nodes, each of {comparisons[0].fleet.num_blocks:,} blocks",
            "hit rate in blocks",
            [
                Line("one cache of all blocks", nodes, pooled, style="--"),
                *(
                    Line(results[0].policy, nodes, [each.hit_rate for each in results], marks=True)
                    for results in by_policy
                ),
            ],
            y_percent=True,
        )
    )


def _policies(page: Page, comparison: Comparison) -> None:
    fleet, frontier = comparison.fleet, comparison.frontier()
    stopped = "  Stopped before all policies were simulated." if comparison.is_partial else ""
    page.text(
        f"{fleet.num_nodes} simulated nodes of {fleet.num_blocks:,} blocks of "
        f"{comparison.block_size} tokens.  One cache of all blocks would hit "
        f"{percent(comparison.pooled_hit_rate)} of all blocks." + stopped
    )
    page.table(
        ("policy", "hit rate", "prefilled", "by routing", "imbalance", "TTFT", "p99"),
        [
            (
                f"{'* ' if result.policy in frontier else ''}{result.policy}",
                percent(result.hit_rate),
                result.uncached_tokens,
                result.routing_tokens,
                f"{result.imbalance:.2f}",
                f"{result.ttft_mean:.3f} s",
                f"{result.ttft_p99:.3f} s",
            )
            for result in comparison.results
        ],
        caption="*: none is better at one of hit rate and mean time to the first token, and as "
        "good at the other.",
        align="lrrrrrr",
    )
