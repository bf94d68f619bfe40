"""The tables of ``prefix-cache replay``."""

from __future__ import annotations

from collections.abc import Iterable

import click
from rich.console import Console
from rich.table import Table

from prefix_cache.cli.terminal import shares
from prefix_cache.cli.terminal.printable import printable
from prefix_cache.cli.terminal.shares import bar
from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole
from prefix_cache.replay.formats import Source
from prefix_cache.replay.measure.divergence import Divergence
from prefix_cache.replay.measure.loss import Loss
from prefix_cache.replay.measure.report import Report
from prefix_cache.sizing import show_bytes

_MAX_TURNS = 20
_MAX_KINDS = 6
_CURVE_POINTS = 12

LOSSES = {
    "first_seen": "nothing seen before begins like that",
    "divergence": "repeated, but behind a difference",
    "reencoding": "answers whose text was encoded anew",
    "block_rounding": "seen, in a block that was not full",
    "last_token": "all was seen; the last block is computed again",
    "eviction": "was cached, and evicted",
    "routing": "another node had it",
}
"""What made tokens be prefilled, for people."""


def print_report(report: Report) -> None:
    """Print what was cached and what was not, by turn and by reason, and what would change it."""
    console = plain_console()
    _print_head(console, report)
    if not report.replay.all.prompt_tokens:
        return
    _print_turns(console, report)
    _print_loss(console, report.replay.loss)
    _print_divergences(console, report)
    _print_curve(console, report)
    _print_block_sizes(console, report)


def print_warnings(report: Report) -> None:
    """Say on stderr what did not go as planned."""
    replay = report.replay
    warnings = []
    if report.is_partial:
        why = str(report.ended_by) or "by Ctrl-C"
        warnings.append(
            f"figures are of a part of the file, the replay was ended: {printable(why)}"
        )
    if replay.not_served.requests:
        warnings.append(
            f"{replay.not_served.requests:,} requests were not served and are in no figure; the "
            f"first: {printable(replay.not_served.error)}"
        )
    if replay.carried_over_tokens:
        warnings.append(
            f"{replay.carried_over_tokens:,} of the cached tokens were carried over: this run did "
            "not put them there; leave out --salt, and two runs give the same figures"
        )
    _warn(warnings)
    print_source_warnings(report.source)


def print_source_warnings(source: Source) -> None:
    """Say on stderr what was not read as it stands in the file."""
    warnings = []
    if source.skipped:
        problems = "; the last: ".join(source.problems)
        warnings.append(
            f"{source.skipped:,} bad records were left out; the first: {printable(problems)}"
        )
    if source.late:
        warnings.append(f"{source.late:,} requests were out of order, and were played late")
    _warn(warnings)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)


def _print_head(console: Console, report: Report) -> None:
    replay, source = report.replay, report.source
    totals = replay.all.totals
    if report.num_blocks is None:
        cache = f"blocks of {replay.block_size} tokens, as many as it takes"
    else:
        cache = f"{report.num_blocks:,} blocks of {replay.block_size} tokens"
    console.print(
        f"{printable(source.name)} ({source.format}; tokens are {printable(source.tokens_are)}), "
        f"on {cache}.\n"
        f"{replay.all.requests:,} requests of {totals.prompt_tokens:,} prompt tokens: "
        f"{totals.cached_tokens:,} cached ({percent(totals.hit_rate)}), "
        f"{totals.prefilled_tokens:,} prefilled.",
        soft_wrap=True,
    )
    for line in (*ceiling_lines(report), *saved_lines(report), *reported_lines(report)):
        console.print(line, soft_wrap=True)
    console.print()


def ceiling_lines(report: Report) -> list[str]:
    """What no cache can exceed, by both ways of counting."""
    ceiling = report.ceiling
    return [
        f"Ceiling, of a cache that never evicts: {percent(ceiling['hit_rate'])} of the tokens "
        "(full blocks, at least one token computed); "
        f"{percent(ceiling['block_hit_rate'])} of all blocks, partial ones counted as whole."
    ]


def saved_lines(report: Report) -> list[str]:
    """What the cached tokens are worth, where a model was named."""
    if (value := report.value) is None:
        return []
    line = (
        f"Saved for {printable(value.model_name)}: {value.flops_saved:.3g} operations "
        f"({percent(value.flops_share)} of all prefill), {show_bytes(value.kv_bytes)} of KV "
        "not written again"
    )
    if value.seconds_saved is not None:
        line += f", {value.seconds_saved:,.1f} s of one {value.gpu_name} at half its peak"
    return [line + "."]


def reported_lines(report: Report) -> list[str]:
    """What the engine said that served the requests first, where the file has it."""
    reported = report.replay.reported
    if not reported.requests:
        return []
    return [
        f"Reported in the file, for {reported.requests:,} requests: "
        f"{reported.prompt_tokens:,} prompt tokens, {reported.cached_tokens:,} cached "
        f"({percent(reported.totals.hit_rate)})."
    ]


def _print_turns(console: Console, report: Report) -> None:
    table = _table("turn", "requests", "prompt", "cached", "prefilled", "hit rate", "")
    by_turn = sorted(report.replay.by_turn.items())
    for turn, tally in by_turn[:_MAX_TURNS]:
        totals = tally.totals
        tokens = totals.prompt_tokens, totals.cached_tokens, totals.prefilled_tokens
        numbers = [f"{number:,}" for number in (turn, tally.requests, *tokens)]
        table.add_row(*numbers, percent(totals.hit_rate), bar(totals.hit_rate or 0))
    print_whole(console, table)
    if len(by_turn) > _MAX_TURNS:
        console.print(f"... {len(by_turn) - _MAX_TURNS:,} more turns; all are in --json\n")


def _print_loss(console: Console, loss: Loss) -> None:
    table = _table("prefilled because", "tokens", "share", left=1)
    for part, tokens in loss.as_json().items():
        share = tokens / loss.tokens if loss.tokens else 0.0
        table.add_row(LOSSES[part], f"{tokens:,}", percent(share))
    table.add_row("all", f"{loss.tokens:,}", percent(1.0 if loss.tokens else None))
    print_whole(console, table)


def _print_divergences(console: Console, report: Report) -> None:
    groups = report.divergences()
    if not groups:
        return
    table = _table("difference", "in", "requests", "tokens behind it", "first", left=2)
    for kind, role, group in groups[:_MAX_KINDS]:
        table.add_row(
            kind,
            role or "-",
            f"{group.requests:,}",
            f"{group.repeated_tokens:,}",
            where(group.example),
        )
    print_whole(console, table)


def where(divergence: Divergence) -> str:
    """Where a prompt diverged: which token, of which message."""
    message = "" if divergence.message is None else f" in message {divergence.message}"
    name = printable(divergence.conversation)
    return f"token {divergence.position:,}{message} ({name}, turn {divergence.turn})"


def _print_curve(console: Console, report: Report) -> None:
    points = report.curve()
    if not points:
        return
    table = _table("blocks", "tokens", "hit rate", "")
    step = max(1, -(-len(points) // _CURVE_POINTS))
    for point in points[::-1][::step][::-1]:
        tokens = point.blocks * report.replay.block_size
        rate = percent(point.hit_rate)
        table.add_row(f"{point.blocks:,}", f"{tokens:,}", rate, bar(point.hit_rate))
    print_whole(console, table)
    console.print(f"{curve_line(report)}\n", soft_wrap=True)


def curve_line(report: Report) -> str:
    """How large a cache is worth its memory."""
    enough = report.blocks_for_nearly_all
    room = ""
    if report.value:
        kv_bytes = report.value.kv_bytes_of(enough * report.replay.block_size)
        room = f" ({show_bytes(kv_bytes)} of KV)"
    return (
        f"{enough:,} blocks{room} have 95% of all hits.  Exact for a cache that evicts what was "
        "least recently used."
    )


def _print_block_sizes(console: Console, report: Report) -> None:
    which = "that never evicts" if report.num_blocks is None else "of this memory"
    table = _table("block size", f"hit rate of a cache {which}", "")
    for size, rate in report.block_sizes():
        table.add_row(f"{size:,}", percent(rate), bar(rate or 0))
    print_whole(console, table)


def percent(share: float | None) -> str:
    """Return a share as exactly as replays are compared."""
    return shares.percent(share, digits=2)


def _table(*columns: str, left: int = 0) -> Table:
    """Return a table whose first columns, and the last where it is for bars, stand left."""
    table = plain_table()
    for place, column in enumerate(columns):
        is_left = place < left or not column or column == "first"
        table.add_column(column, justify="left" if is_left else "right", no_wrap=True)
    return table
