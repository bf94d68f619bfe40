"""``prefix-cache demo --http``: engines and a router, and the time to the first token."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial

import click

from prefix_cache.cli.demo.http_report import print_report
from prefix_cache.cli.signals import run_stoppable
from prefix_cache.cli.terminal.progress import progress_bars
from prefix_cache.replay.http_comparison import (
    POLICIES,
    PREFILL_TOKENS_PER_S,
    HttpSavings,
    play_policy,
)
from prefix_cache.replay.http_conversations import HttpConversation, http_conversations

_CONVERSATIONS = 12
_TURNS = 6


def demo_http(num_engines: int, as_json: bool) -> None:
    """Play conversations over HTTP under each policy, and print how they went."""
    conversations = http_conversations(_CONVERSATIONS, _TURNS)
    with progress_bars(POLICIES, _CONVERSATIONS * _TURNS) as advance:
        savings = run_stoppable(_play(POLICIES, num_engines, conversations, advance))
    if as_json:
        settings = {
            "engines": num_engines,
            "conversations": _CONVERSATIONS,
            "turns": _TURNS,
            "prefill_tokens_per_s": PREFILL_TOKENS_PER_S,
        }
        click.echo(json.dumps({**settings, "policies": [saved.as_json() for saved in savings]}))
        return
    click.echo(
        f"Engines: {num_engines}, each prefills {PREFILL_TOKENS_PER_S:,} tokens a second. "
        f"Conversations: {_CONVERSATIONS}, of {_TURNS} turns.\n"
    )
    print_report(savings)


async def _play(
    policies: Sequence[str],
    num_engines: int,
    conversations: Sequence[HttpConversation],
    advance: Callable[[str], None],
) -> list[HttpSavings]:
    return [
        await play_policy(policy, num_engines, conversations, partial(advance, policy))
        for policy in policies
    ]
