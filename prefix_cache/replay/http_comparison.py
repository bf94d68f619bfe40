"""Plays the same conversations over HTTP under several policies, each on fresh processes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from prefix_cache.replay.fleet import running_engines
from prefix_cache.replay.http_conversations import HttpConversation
from prefix_cache.replay.http_player import HttpPlayer, HttpTurn
from prefix_cache.replay.savings import Totals, sticky_turns

POLICIES = ("sticky", "round_robin")
PREFILL_TOKENS_PER_S = 20_000
_MODEL = "demo"
_DECODE_S_PER_TOKEN = 0.002


@dataclass(frozen=True, slots=True)
class HttpSavings:
    """How turns went under one policy; ``ttft_s`` are the seconds to the first token, ascending."""

    policy: str
    totals: Totals
    sticky_turns: float | None
    ttft_s: tuple[float, ...]

    @classmethod
    def of(cls, policy: str, turns: Sequence[HttpTurn]) -> HttpSavings:
        """Sum up one turn or more."""
        ttft_s = tuple(sorted(turn.ttft_s for turn in turns))
        return cls(policy, Totals.of(turns), sticky_turns(turns), ttft_s)

    @property
    def ttft_mean(self) -> float:
        """Mean seconds to the first token."""
        return statistics.fmean(self.ttft_s)

    def ttft_percentile(self, share: float) -> float:
        """The least seconds to the first token that this share of the turns did not exceed."""
        return self.ttft_s[math.ceil(share * len(self.ttft_s)) - 1]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "policy": self.policy,
            "turns": len(self.ttft_s),
            "ttft_mean": self.ttft_mean,
            "ttft_p50": self.ttft_percentile(0.50),
            "ttft_p99": self.ttft_percentile(0.99),
            "prompt_tokens": self.totals.prompt_tokens,
            "cached_tokens": self.totals.cached_tokens,
            "prefilled_tokens": self.totals.prefilled_tokens,
            "hit_rate": self.totals.hit_rate,
            "sticky_turns": self.sticky_turns,
        }


async def play_policy(
    policy: str,
    num_engines: int,
    conversations: Sequence[HttpConversation],
    on_turn: Callable[[], None],
) -> HttpSavings:
    """Play through a router with this policy; ``on_turn`` is called after each turn.

    Raises what ``running_engines`` and ``HttpPlayer.play`` raise.
    """
    async with running_engines(
        num_engines=num_engines,
        policy=policy,
        options={
            "model": _MODEL,
            "prefill-tokens-per-s": PREFILL_TOKENS_PER_S,
            "decode-s-per-token": _DECODE_S_PER_TOKEN,
        },
    ) as url:
        turns = await HttpPlayer(url, _MODEL).play(conversations, on_turn)
    return HttpSavings.of(policy, turns)
