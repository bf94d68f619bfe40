"""``prefix-cache replay``: what routing policies would have done with a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prefix_cache.cli.progress import progress_bars
from prefix_cache.cli.ranges import NUM_BLOCKS, SecondsRange

if TYPE_CHECKING:
    from prefix_cache.replay.trace import TraceRequest

_ALL = "all"
_ABOVE_ZERO = SecondsRange(min=1e-6, max=1e9)


@click.command(
    short_help="Compare routing policies on a trace.",
    epilog="\b\nExamples:\n"
    "  prefix-cache replay trace.jsonl.gz --nodes 8 --blocks 3000\n"
    "  prefix-cache replay trace.jsonl.gz --policy sticky --policy round_robin --speed 2\n"
    "  prefix-cache replay --load light --json",
)
@click.argument(
    "trace", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option(
    "--load",
    type=click.Choice(["light"]),
    help="Instead of a trace: many chats with one system prompt, on nodes mostly idle.",
)
@click.option("--nodes", type=click.IntRange(1, 1024), default=8, help="Nodes of the fleet.")
@click.option(
    "--blocks", type=NUM_BLOCKS, default=3_000, help="Blocks of 512 tokens that a node can hold."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    default=[_ALL],
    metavar="NAME",
    help="A policy of the router, a baseline, or all; may be repeated.",
)
@click.option("--speed", type=_ABOVE_ZERO, default=1.0, help="Times as fast as the trace says.")
@click.option(
    "--prefill-rate",
    type=_ABOVE_ZERO,
    default=8_000.0,
    help="Tokens a second that a node prefills.",
)
@click.option(
    "--event-lag",
    type=SecondsRange(0, 1e9),
    default=50.0,
    help="Milliseconds until the router hears of what a node holds.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def replay(
    trace: Path | None,
    load: str | None,
    nodes: int,
    blocks: int,
    policies: tuple[str, ...],
    speed: float,
    prefill_rate: float,
    event_lag: float,
    as_json: bool,
) -> None:
    """Serve the requests of a TRACE by simulated nodes behind the real router.

    TRACE is .jsonl or .jsonl.gz: lines of timestamp (milliseconds), input_length, output_length
    and hash_ids (one per block of 512 tokens).  Each node prefills first come, first served, what
    it does not hold, then answers at 20 ms a token, and holds the blocks least recently used.
    Beside the router's policies stand those of other routers, and two that know more than a router
    can (exact_...).
    """
    from prefix_cache.cli.replay_report import print_comparison
    from prefix_cache.replay.policy_comparison import at_speed, compare
    from prefix_cache.replay.simulation import Fleet

    names = _named(policies)
    requests = at_speed(_requests(trace, load), speed)
    fleet = Fleet(
        num_nodes=nodes,
        num_blocks=blocks,
        prefill_rate=prefill_rate,
        event_lag=event_lag / 1000,
    )
    with progress_bars(names, len(requests)) as advance:
        comparison = compare(requests, fleet, names, advance)
    if as_json:
        click.echo(json.dumps(comparison.as_json()))
    else:
        print_comparison(comparison)


def _requests(trace: Path | None, load: str | None) -> list[TraceRequest]:
    from prefix_cache.replay.light_load import light_load
    from prefix_cache.replay.trace import read_trace

    if (trace is None) == (load is None):
        raise click.UsageError("give either a TRACE or --load")
    return light_load() if trace is None else read_trace(trace)


def _named(policies: tuple[str, ...]) -> list[str]:
    """The policies named, each once, in the order of all."""
    from prefix_cache.replay.policy_comparison import CONTESTANTS

    if unknown := set(policies) - CONTESTANTS.keys() - {_ALL}:
        raise click.UsageError(
            f"unknown policy {min(unknown)!r}; expected {_ALL}, {', '.join(CONTESTANTS)}"
        )
    return [name for name in CONTESTANTS if name in policies or _ALL in policies]
