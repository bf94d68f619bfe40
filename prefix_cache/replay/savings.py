"""What caching saved: token counts of a play, and of the same turns played in other ways."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefix_cache.replay.player import Play, PlayedTurn, joined


@dataclass(frozen=True, slots=True)
class Totals:
    """Prompt tokens of some turns, and how many of them were cached."""

    prompt_tokens: int
    cached_tokens: int

    @classmethod
    def of(cls, turns: Iterable[PlayedTurn]) -> Totals:
        """Add up turns."""
        prompt_tokens = cached_tokens = 0
        for turn in turns:
            prompt_tokens += turn.prompt_tokens
            cached_tokens += turn.cached_tokens
        return cls(prompt_tokens, cached_tokens)

    @property
    def prefilled_tokens(self) -> int:
        """Prompt tokens that had to be computed."""
        return self.prompt_tokens - self.cached_tokens

    @property
    def hit_rate(self) -> float | None:
        """Share of the prompt tokens that was cached; None without any token."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    def saved_ratio(self, no_cache: Totals) -> float | None:
        """How many times less was prefilled than without a cache; None if nothing was."""
        if not self.prefilled_tokens:
            return None
        return no_cache.prefilled_tokens / self.prefilled_tokens

    def as_json(self, no_cache: Totals) -> dict[str, Any]:
        """Plain values, compared with the same turns without a cache."""
        return asdict(self) | {
            "prefilled_tokens": self.prefilled_tokens,
            "hit_rate": self.hit_rate,
            "saved_ratio": self.saved_ratio(no_cache),
        }


def sticky_turns(turns: Iterable[PlayedTurn]) -> float | None:
    """Share of the turns after a conversation's first that went to its node.

    That is the node of its turn before.  None when every conversation has one turn only.
    """
    home: dict[str, str] = {}
    later = stayed = 0
    for turn in turns:
        if turn.conversation in home:
            later += 1
            stayed += home[turn.conversation] == turn.node
        home[turn.conversation] = turn.node
    return stayed / later if later else None


@dataclass(frozen=True)
class Savings:
    """The same turns played three times: sticky, round robin, and without a cache."""

    sticky: Play
    round_robin: Play
    no_cache: Play

    @property
    def plays(self) -> dict[str, Play]:
        """The three plays by their names."""
        return {"sticky": self.sticky, "round_robin": self.round_robin, "no_cache": self.no_cache}

    @property
    def compared(self) -> dict[str, list[PlayedTurn]]:
        """By play, the turns that all three served: only these can be compared."""
        served = [{_key(turn) for turn in play.turns} for play in self.plays.values()]
        common = set.intersection(*served)
        return {
            name: [turn for turn in play.turns if _key(turn) in common]
            for name, play in self.plays.items()
        }

    def as_json(self) -> dict[str, Any]:
        """One object of numbers; undefined shares (of no tokens, of no turns) are None.

        Totals are those of the ``compared`` turns; the others are in ``turns`` and ``not_served``.
        """
        totals = {name: Totals.of(turns) for name, turns in self.compared.items()}
        without = totals["no_cache"]
        return {
            "turns": [
                asdict(turn) | {"prefilled_tokens": turn.prefilled_tokens}
                for turn in self.sticky.turns
            ],
            "totals": totals["sticky"].as_json(without),
            "round_robin": totals["round_robin"].as_json(without),
            "no_cache": totals["no_cache"].as_json(without),
            "compared_turns": len(self.compared["sticky"]),
            "sticky_turns": sticky_turns(self.sticky.turns),
            "not_served": {
                name: [asdict(turn) for turn in play.not_served]
                for name, play in self.plays.items()
            },
            "retried_turns": {name: play.retried_turns for name, play in self.plays.items()},
            "lost_tokens": {name: play.lost_tokens for name, play in self.plays.items()},
        }


def together(savings: Sequence[Savings]) -> Savings:
    """Savings of several inputs as those of one."""
    return Savings(
        sticky=joined(s.sticky for s in savings),
        round_robin=joined(s.round_robin for s in savings),
        no_cache=joined(s.no_cache for s in savings),
    )


def _key(turn: PlayedTurn) -> tuple[str, int]:
    return turn.conversation, turn.turn
