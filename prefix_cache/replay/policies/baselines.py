"""What other routers do, from their published descriptions, to compare our policies with.

They see claims and load as ours do, unless they say otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import xxhash

from prefix_cache.replay.policies.simulation import MakePolicy, SimulatedNode
from router.policies import Candidate, Cost, rendezvous_score
from router.turn import Turn


def _head_ranks(turn: Turn, candidates: Sequence[Candidate], head_blocks: int) -> list[int]:
    """The place of each candidate in the order that the first blocks of the prompt give."""
    digest = xxhash.xxh3_128_digest(b"".join(turn.prompt.block_hashes[:head_blocks]))
    scores = [rendezvous_score(digest, candidate.node) for candidate in candidates]
    in_order = sorted(scores, reverse=True)
    return [in_order.index(score) for score in scores]


class HeadHash:
    """A hash of the first blocks of the prompt, and nothing else."""

    terms = ("rank",)

    def __init__(self, head_blocks: int) -> None:
        self._head_blocks = head_blocks

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """The rank of each candidate by hash."""
        return [(rank,) for rank in _head_ranks(turn, candidates, self._head_blocks)]


class BoundedHeadHash:
    """The same, but the next node in order where one has too many turns in flight for the mean."""

    terms = ("rank", "over_bound")

    def __init__(self, head_blocks: int, load_factor: float) -> None:
        self._head_blocks = head_blocks
        self._load_factor = load_factor

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """The rank by hash, behind all others for nodes over the bound."""
        in_flight = sum(candidate.node.in_flight for candidate in candidates)
        bound = max(1.0, self._load_factor * (in_flight + 1) / len(candidates))
        ranks = _head_ranks(turn, candidates, self._head_blocks)
        return [
            (rank, len(candidates) if candidate.node.in_flight + 1 > bound else 0)
            for rank, candidate in zip(ranks, candidates, strict=True)
        ]


class CacheAware:
    """The longest prefix when it is a good part of the prompt and the fleet is balanced.

    Else the fewest turns in flight.  Unbalanced is a fleet whose most and least loaded nodes are
    more than ``most_apart`` turns and more than ``most_times`` apart.
    """

    terms = ("not_longest", "in_flight")

    def __init__(self, threshold: float, most_apart: int, most_times: float) -> None:
        self._threshold = threshold
        self._most_apart = most_apart
        self._most_times = most_times

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """One or the other, by the state of the whole fleet."""
        loads = [candidate.node.in_flight for candidate in candidates]
        most, least = max(loads), min(loads)
        longest = max(candidate.cached_tokens for candidate in candidates)
        unbalanced = most - least > self._most_apart and most > self._most_times * least
        if unbalanced or longest <= self._threshold * turn.prompt.num_tokens:
            return [(0, load) for load in loads]
        return [(float(candidate.cached_tokens < longest), 0) for candidate in candidates]


class PrefixOrTokens:
    """The longest prefix when it is a good part of the prompt, else the fewest tokens in flight."""

    terms = ("not_longest", "in_flight_tokens")

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """Where it is good enough, only the longest prefix counts."""
        longest = max(candidate.cached_tokens for candidate in candidates)
        good = longest > self._threshold * turn.prompt.num_tokens
        return [
            (
                1e12 if good and candidate.cached_tokens < longest else 0.0,
                candidate.node.in_flight_tokens,
            )
            for candidate in candidates
        ]


class OverlapCost:
    """Blocks to prefill, queued and own less those held, weighed against blocks in use."""

    terms = ("prefill_blocks", "blocks_in_use")

    def __init__(self, prefill_weight: float) -> None:
        self._prefill_weight = prefill_weight

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """Both in blocks."""
        tokens, block_size = turn.prompt.num_tokens, turn.prompt.block_size
        return [
            (
                self._prefill_weight
                * max(0, candidate.node.queued_prefill + tokens - candidate.cached_tokens)
                / block_size,
                (candidate.node.in_flight_tokens + tokens) / block_size,
            )
            for candidate in candidates
        ]


class ExactWork:
    """Tokens to prefill, and those queued before them with a weight.

    An oracle: it sees what nodes hold at this moment, and how long they will be busy.  With the
    weight 1 it minimises the time to the first token of each turn by itself.
    """

    terms = ("uncached", "queued")

    def __init__(self, queued_weight: float, nodes: Mapping[str, SimulatedNode]) -> None:
        self._queued_weight = queued_weight
        self._nodes = nodes

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        """Both in tokens."""
        costs: list[Cost] = []
        for candidate in candidates:
            node = self._nodes[candidate.node.name]
            queued = max(0.0, node.free_at - now) * node.prefill_rate
            costs.append((node.uncached(turn.prompt), self._queued_weight * queued))
        return costs


BASELINES: Mapping[str, MakePolicy] = {
    "head_hash": lambda nodes: HeadHash(head_blocks=2),
    "bounded_head_hash": lambda nodes: BoundedHeadHash(head_blocks=2, load_factor=1.25),
    "cache_aware": lambda nodes: CacheAware(threshold=0.3, most_apart=64, most_times=1.5),
    "prefix_or_tokens": lambda nodes: PrefixOrTokens(threshold=0.3),
    "overlap_cost": lambda nodes: OverlapCost(prefill_weight=2.0),
    "exact_work": lambda nodes: ExactWork(0.25, nodes),
    "exact_ttft": lambda nodes: ExactWork(1.0, nodes),
}
