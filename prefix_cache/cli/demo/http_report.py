"""The table of ``prefix-cache demo --http``."""

from __future__ import annotations

from collections.abc import Sequence

from prefix_cache.cli.terminal.shares import bar
from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole
from prefix_cache.replay.http_comparison import HttpSavings


def print_report(savings: Sequence[HttpSavings]) -> None:
    """Print one row for each policy, and how the first tokens of the last and the first compare."""
    console = plain_console()
    table = plain_table()
    table.add_column("policy", no_wrap=True)
    for name in ("TTFT mean", "p50", "p99", "prefilled", "hit rate"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for saved in savings:
        hit_rate = saved.totals.hit_rate or 0
        table.add_row(
            _name(saved),
            _ms(saved.ttft_mean),
            _ms(saved.ttft_percentile(0.50)),
            _ms(saved.ttft_percentile(0.99)),
            f"{saved.totals.prefilled_tokens:,}",
            f"{hit_rate:.1%}",
            bar(hit_rate),
        )
    print_whole(console, table)
    first, last = savings[0], savings[-1]
    console.print("TTFT is the time to the first token, as the client measured it.")
    ratio = last.ttft_mean / first.ttft_mean
    console.print(f"With {_name(last)} its mean is {ratio:.1f} times that with {_name(first)}.")


def _name(saved: HttpSavings) -> str:
    return saved.policy.replace("_", " ")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.0f} ms"
