"""Serves a file, or a made-up load, by simulated nodes under several policies."""

from __future__ import annotations

import click

from prefix_cache.cli.replay.interrupt import Interrupt
from prefix_cache.cli.replay.options import ReplayOptions
from prefix_cache.cli.terminal.progress import progress_bars
from prefix_cache.replay.formats import Source, checked_block_size
from prefix_cache.replay.policies.light_load import light_load
from prefix_cache.replay.policies.policy_comparison import (
    CONTESTANTS,
    Comparison,
    at_speed,
    compare,
)
from prefix_cache.replay.policies.simulation import Fleet
from prefix_cache.replay.policies.trace import TraceRequest, trace_of

_ALL = "all"


def named_policies(options: ReplayOptions) -> list[str]:
    """Return the policies named, each once, in the order of all; all if none is named."""
    if unknown := set(options.policies) - CONTESTANTS.keys() - {_ALL}:
        raise click.UsageError(
            f"unknown policy {min(unknown)!r}; expected {_ALL}, {', '.join(CONTESTANTS)}"
        )
    named = options.policies or (_ALL,)
    return [name for name in CONTESTANTS if name in named or _ALL in named]


def compared(
    source: Source | None, policies: list[str], options: ReplayOptions
) -> list[Comparison]:
    """Compare the policies on each of the fleets asked for; none where there is no request.

    Ctrl-C ends it: the last comparison then is partial.
    """
    with Interrupt() as interrupt:
        requests = at_speed(_requests(source, options), options.speed)
        return _compared(requests, policies, options, interrupt) if requests else []


def _compared(
    requests: list[TraceRequest],
    policies: list[str],
    options: ReplayOptions,
    interrupt: Interrupt,
) -> list[Comparison]:
    fleets = [
        Fleet(
            num_nodes=num_nodes,
            num_blocks=options.blocks_of_node,
            prefill_rate=options.prefill_rate,
            event_lag=options.event_lag / 1000,
        )
        for num_nodes in options.fleets
    ]
    comparisons: list[Comparison] = []
    with progress_bars(policies, len(requests) * len(fleets)) as advance:

        def on_request(policy: str) -> None:
            advance(policy)
            interrupt.check()

        for fleet in fleets:
            comparisons.append(compare(requests, fleet, policies, on_request))
            if comparisons[-1].is_partial:
                break
    return comparisons


def _requests(source: Source | None, options: ReplayOptions) -> list[TraceRequest]:
    if source is None:
        return light_load()
    block_size = checked_block_size(options.block_size, source.grain)
    return trace_of(source, source.grain, block_size)
