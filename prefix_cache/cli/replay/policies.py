"""The table of policies of ``prefix-cache replay``."""

from __future__ import annotations

import click

from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole
from prefix_cache.replay.policies.policy_comparison import Comparison

_COLUMNS = ("hit", "/ pooled", "prefilled", "imbalance", "TTFT", "p50", "p99")


def print_comparison(comparison: Comparison) -> None:
    """Print a row for each policy, those on the frontier marked, and what one cache would hit."""
    fleet, pooled = comparison.fleet, comparison.pooled_hit_rate
    click.echo(
        f"{comparison.requests:,} requests, {fleet.num_nodes} nodes, each of "
        f"{fleet.num_blocks:,} blocks of {comparison.block_size} tokens.\n"
        f"A node prefills {fleet.prefill_rate:,.0f} tokens a second, first come, first served; "
        f"events lag {1000 * fleet.event_lag:g} ms.\n"
        f"One cache of {fleet.num_nodes * fleet.num_blocks:,} blocks would hit {pooled:.2%} "
        "of all blocks.\n"
    )
    table = plain_table()
    table.add_column("policy", no_wrap=True)
    for column in _COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    frontier = comparison.frontier()
    for result in comparison.results:
        table.add_row(
            f"{'*' if result.policy in frontier else ' '} {result.policy}",
            f"{result.hit_rate:.2%}",
            f"{result.hit_rate / pooled:.3f}" if pooled else "-",
            f"{result.uncached_tokens / 1e6:,.1f}",
            f"{result.imbalance:.2f}",
            f"{result.ttft_mean:,.3f}",
            f"{result.ttft_p50:,.3f}",
            f"{result.ttft_p99:,.3f}",
        )
    print_whole(plain_console(), table)
    click.echo(
        "*: on the frontier; none is better at one of hit rate and mean TTFT and as good\n"
        "at the other.  Hit: blocks that their node held, of all.  Prefilled: millions of\n"
        "tokens; imbalance: the busiest node's, by the mean.  TTFT: seconds, mean first."
    )
