"""What a replay found, ready to be printed, drawn, or read by machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefix_cache.replay.formats import Source
from prefix_cache.replay.measure.curve import Point, cache_sizes, smallest_for
from prefix_cache.replay.measure.replay import Divergences, Replay, Tally
from prefix_cache.replay.measure.value import Value

_POINTS = 48
_NEARLY_ALL = 0.95


@dataclass(frozen=True)
class Report:
    """The result of ``replay`` on ``source``, on a cache of ``num_blocks``, None for any number.

    ``value`` is what was saved for a model, if one was named.  ``ended_by`` is what ended the
    replay before the end of the file, if something did.
    """

    source: Source
    replay: Replay
    num_blocks: int | None
    value: Value | None = None
    ended_by: BaseException | None = None

    @property
    def is_partial(self) -> bool:
        """Whether it is of a part of the file only."""
        return self.ended_by is not None

    def curve(self) -> list[Point]:
        """Hit rate of caches from the largest request to all that was seen, for LRU exact."""
        distances = self.replay.distances
        smallest, largest = distances.largest_request, distances.num_blocks
        sizes = set(cache_sizes(smallest, largest, _POINTS))
        if self.num_blocks is not None and smallest <= self.num_blocks <= largest:
            sizes.add(self.num_blocks)
        return [Point(size, self._hit_rate(size)) for size in sorted(sizes)]

    @property
    def blocks_for_nearly_all(self) -> int:
        """The smallest cache that has 95 % of the hits of an unlimited one."""
        distances = self.replay.distances
        return smallest_for(
            _NEARLY_ALL, distances.largest_request, distances.num_blocks, self._hit_rate
        )

    @property
    def ceiling(self) -> dict[str, float | None]:
        """Hit rates of an unlimited cache: of tokens by our rule, and of blocks as others count."""
        replay = self.replay
        rate = self._hit_rate(replay.distances.num_blocks) if replay.all.prompt_tokens else None
        blocks = replay.blocks
        return {
            "hit_rate": rate,
            "block_hit_rate": blocks.seen / blocks.blocks if blocks.blocks else None,
        }

    def divergences(self) -> Sequence[tuple[str, str, Divergences]]:
        """Kind, role and what it cost, the costliest first."""
        groups = self.replay.divergences.items()
        in_order = sorted(groups, key=lambda item: -item[1].repeated_tokens)
        return [(kind, role, group) for (kind, role), group in in_order]

    def block_sizes(self) -> list[tuple[int, float | None]]:
        """Block size in tokens, and the hit rate of a cache of the same memory with it.

        None where that cache is too small for the largest request.
        """
        tokens = self.replay.all.prompt_tokens
        memory = None if self.num_blocks is None else self.num_blocks * self.replay.block_size
        hits = self.replay.block_sizes.hit_tokens(memory).items()
        return [(size, None if hit is None or not tokens else hit / tokens) for size, hit in hits]

    def as_json(self) -> dict[str, Any]:
        """All of it; undefined rates (of no tokens) are None."""
        replay, source = self.replay, self.source
        return {
            "file": source.name,
            "format": source.format,
            "tokens_are": source.tokens_are,
            "partial": self.is_partial,
            "block_size": replay.block_size,
            "blocks": self.num_blocks,
            **_tally(replay.all),
            "loss": replay.loss.as_json(),
            "divergences": [
                {
                    "kind": kind,
                    "role": role,
                    "requests": group.requests,
                    "tokens": group.repeated_tokens,
                    "example": asdict(group.example),
                }
                for kind, role, group in self.divergences()
            ],
            "by_turn": [
                {"turn": turn, **_tally(tally)} for turn, tally in sorted(replay.by_turn.items())
            ],
            "ceiling": self.ceiling,
            "curve": [
                {"blocks": point.blocks, "hit_rate": point.hit_rate} for point in self.curve()
            ],
            "block_sizes": [
                {"block_size": size, "hit_rate": rate} for size, rate in self.block_sizes()
            ],
            "savings": {
                "tokens": replay.all.cached_tokens,
                **(self.value.as_json() if self.value else {}),
            },
            "reported": _tally(replay.reported) if replay.reported.requests else None,
            "not_served": asdict(replay.not_served),
            "carried_over_tokens": replay.carried_over_tokens,
            "skipped_records": source.skipped,
            "skipped_problems": source.problems,
            "late_requests": source.late,
            "policies": [],
        }

    def _hit_rate(self, num_blocks: int) -> float:
        hits = int(self.replay.distances.hit_blocks(num_blocks))
        return hits * self.replay.block_size / max(self.replay.all.prompt_tokens, 1)


def _tally(tally: Tally) -> dict[str, Any]:
    totals = tally.totals
    return {
        "requests": tally.requests,
        "prompt_tokens": totals.prompt_tokens,
        "cached_tokens": totals.cached_tokens,
        "prefilled_tokens": totals.prefilled_tokens,
        "hit_rate": totals.hit_rate,
    }
