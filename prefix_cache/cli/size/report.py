"""What ``prefix-cache size`` prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click
from rich.table import Table

from prefix_cache.cli.terminal.tables import plain_console, plain_table, print_whole
from prefix_cache.sizing import Sizing, show_bytes, size
from prefix_cache.sizing.byte_sizes import GIB
from prefix_cache.sizing.explanation import assumptions, conversations, span, steps

_CONTEXTS = (2_048, 8_192, 32_768, 131_072)


def context_rows(sizing: Sizing) -> list[dict[str, str]]:
    """Return what a request takes, and with memory how many fit, at usual contexts and at its own.

    Usual ones are left out where the model was not trained for them.
    """
    setup = sizing.setup
    longest = setup.shape.max_context or setup.context
    usual = {context for context in _CONTEXTS if setup.shared_prefix < context <= longest}
    rows = []
    for context in sorted(usual | {setup.context}):
        other = size(replace(setup, context=context))
        row = {
            "context": f"{context:,}",
            "KV of one request": f"{other.stage.sequence_bytes(context) / GIB:,.3g} GiB",
        }
        if other.low and other.high:
            row["conversations"] = span(other.low.conversations, other.high.conversations)
        rows.append(row)
    return rows


def sizing_as_json(sizing: Sizing) -> dict[str, Any]:
    """Return the answer as JSON; ranges and what fits are null without memory.

    Bytes are those of one GPU, tokens and conversations those of all replicas.
    """
    setup, stage, low, high = sizing.setup, sizing.stage, sizing.low, sizing.high
    ranges: dict[str, dict[str, int] | None] = dict.fromkeys(
        ("kv_bytes", "tokens", "conversations")
    )
    if low and high:
        ranges = {name: {"low": getattr(low, name), "high": getattr(high, name)} for name in ranges}
    return {
        "model": setup.shape.name,
        "context": setup.context,
        "gpus": setup.num_gpus,
        "bytes_per_token": stage.bytes_per_token(setup.context),
        "block_bytes": stage.block_bytes(setup.context),
        "fixed_bytes_per_sequence": stage.fixed_bytes(setup.context),
        "sequence_bytes": stage.sequence_bytes(setup.context),
        **ranges,
        "max_context_that_fits": low and low.max_context,
        "weights_bytes": stage.weights_bytes,
        "assumptions": assumptions(sizing),
    }


def print_sizing(sizing: Sizing, *, explain: bool) -> None:
    """Print what KV takes at some contexts, what fits, and what that rests on."""
    setup, stage = sizing.setup, sizing.stage
    token, block = stage.bytes_per_token(setup.context), stage.block_bytes(setup.context)
    click.echo(
        f"{setup.shape.name}: {show_bytes(token)} of KV per token in {setup.kv_dtype}, "
        f"{show_bytes(block)} per block of {setup.block_size} tokens"
        + (", on each GPU" if setup.num_gpus > 1 else "")
    )
    if fixed := stage.fixed_bytes(setup.context):
        click.echo(f"and {show_bytes(fixed)} per conversation, however long")
    click.echo()
    print_whole(plain_console(), _contexts_table(sizing))
    for line in verdict(sizing):
        click.echo(line)
    if explain:
        click.echo()
        print_whole(plain_console(), _steps_table(sizing))
    click.echo("\nAssumed:" if sizing.low else "Assumed:")
    for assumption in assumptions(sizing):
        click.echo(f"- {assumption}")


def verdict(sizing: Sizing) -> list[str]:
    """Return what fits, in sentences; none without memory."""
    low, high, setup = sizing.low, sizing.high, sizing.setup
    if low is None or high is None:
        return []
    of_one, of_all = (" on each GPU", " in all") if setup.num_gpus > 1 else ("", "")
    lines = [
        f"KV memory: {span(low.kv_bytes / GIB, high.kv_bytes / GIB, ',.2f')} GiB{of_one}, "
        f"{span(low.tokens, high.tokens)} tokens{of_all}."
    ]
    longest = setup.shape.max_context or setup.context
    for context in sorted({setup.context, longest}):
        lines.append(_verdict_on(context, sizing))
    return lines


def _verdict_on(context: int, sizing: Sizing) -> str:
    low, high, setup = sizing.low, sizing.high, sizing.setup
    assert low is not None
    assert high is not None
    if high.max_context < context:
        return (
            f"No request of {context:,} tokens fits; the largest context that does is "
            f"{low.max_context:,}"
            + (f" (at best {high.max_context:,})." if low.max_context != high.max_context else ".")
        )
    if low.max_context < context:
        return f"A request of {context:,} tokens fits at best; {low.max_context:,} surely do."
    if context != setup.context:
        return f"A request of {context:,} tokens, the model's longest, fits."
    return f"Conversations of {context:,} tokens: {conversations(low, high)}."


def _contexts_table(sizing: Sizing) -> Table:
    rows = context_rows(sizing)
    table = plain_table()
    for column in rows[0]:
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    return table


def _steps_table(sizing: Sizing) -> Table:
    table = plain_table()
    for column in ("what", "how", ""):
        table.add_column(column, no_wrap=True)
    for step in steps(sizing):
        table.add_row(*step)
    return table
