"""``prefix-cache replay --sample``: hit rate against cache size of long files."""

from __future__ import annotations

import json
import sys

import click

from prefix_cache.cli import INTERRUPTED
from prefix_cache.cli.replay.interrupt import Interrupt
from prefix_cache.cli.replay.options import ReplayOptions, opened_source
from prefix_cache.cli.replay.progress import counted_tokens
from prefix_cache.cli.replay.table import print_source_warnings
from prefix_cache.cli.terminal.printable import printable
from prefix_cache.cli.terminal.shares import bar
from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole
from prefix_cache.replay.formats import checked_block_size
from prefix_cache.replay.measure.curve import cache_sizes
from prefix_cache.replay.measure.sampled import SampledDistances

_POINTS = 16
_FEW_BLOCKS = 1_000


def sample(options: ReplayOptions) -> None:
    """Measure a sample of the blocks of a file, and print it; Ctrl-C ends it early."""
    source = opened_source(options)
    block_size = checked_block_size(options.block_size, source.grain)
    share = options.sample or 1.0
    sampled = SampledDistances(source.grain.words_in(block_size), block_size, share)
    is_partial = False
    with Interrupt() as interrupt, counted_tokens() as count:
        try:
            for request in source:
                sampled.use(request)
                count(request.prompt_tokens)
                interrupt.check()
        except KeyboardInterrupt:
            is_partial = True
    points = sampled.points(cache_sizes(sampled.largest_request, sampled.num_blocks, _POINTS))
    if options.as_json:
        answer = {
            "file": source.name,
            "format": source.format,
            "partial": is_partial,
            "sample": share,
            "block_size": block_size,
            "requests": sampled.requests,
            "prompt_tokens": sampled.prompt_tokens,
            "curve": [point._asdict() for point in points],
            "skipped_records": source.skipped,
            "skipped_problems": source.problems,
            "late_requests": source.late,
        }
        click.echo(json.dumps(answer))
    else:
        click.echo(
            f"{printable(source.name)}: {sampled.requests:,} requests of "
            f"{sampled.prompt_tokens:,} prompt tokens, {share:.3g} of their blocks of "
            f"{block_size} tokens.\n"
        )
        table = plain_table()
        for column in ("blocks", "hit rate", "+-"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("")
        for point in points:
            rate, error = f"{point.hit_rate:.2%}", f"{point.error or 0:.2%}"
            table.add_row(f"{point.blocks:,}", rate, error, bar(point.hit_rate))
        print_whole(plain_console(), table)
        click.echo("Estimates; +-: twice the standard error.")
    if share < 1 and sampled.sampled_blocks < _FEW_BLOCKS:
        click.echo(
            f"warning: the sample has {sampled.sampled_blocks:,} blocks only; rates and errors "
            f"can be relied on from about {_FEW_BLOCKS:,} on: take a larger share",
            err=True,
        )
    print_source_warnings(source)
    if is_partial:
        sys.exit(INTERRUPTED)
