"""One trace under several policies, beside one pooled cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from random import Random
from typing import Any

from prefix_cache.replay.policies.baselines import BASELINES
from prefix_cache.replay.policies.block_lru import pooled_hit_rate
from prefix_cache.replay.policies.simulation import Fleet, MakePolicy, Result, simulate
from prefix_cache.replay.policies.trace import TraceRequest
from router.config import PoolConfig
from router.policies import POLICIES, RandomChoice


def _ours(name: str) -> MakePolicy:
    return lambda nodes: POLICIES[name](PoolConfig())


CONTESTANTS: Mapping[str, MakePolicy] = {
    **{name: _ours(name) for name in POLICIES},
    "random": lambda nodes: RandomChoice(Random(0)),
    **BASELINES,
}
"""The router's policies, the one that draws made repeatable, and those of other routers."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a trace cost under each policy."""

    requests: int
    block_size: int
    fleet: Fleet
    results: Sequence[Result]
    pooled_hit_rate: float
    """Of one cache with the blocks of all nodes."""
    is_partial: bool = False
    """Whether Ctrl-C ended it before all policies were done."""

    def frontier(self) -> list[str]:
        """Policies that none beats at both hit rate and mean time to the first token."""
        return [
            one.policy
            for one in self.results
            if not any(_beats(other, one) for other in self.results)
        ]

    def as_json(self) -> dict[str, Any]:
        """All of it, for machines; times in seconds."""
        return {
            "requests": self.requests,
            "nodes": self.fleet.num_nodes,
            "blocks": self.fleet.num_blocks,
            "block_size": self.block_size,
            "prefill_rate": self.fleet.prefill_rate,
            "event_lag": self.fleet.event_lag,
            "pooled_lru_hit_rate": self.pooled_hit_rate,
            "policies": [asdict(result) for result in self.results],
            "frontier": self.frontier(),
        }


def compare(
    trace: Sequence[TraceRequest],
    fleet: Fleet,
    policies: Iterable[str],
    on_request: Callable[[str], None] = lambda policy: None,
) -> Comparison:
    """Serve a trace of at least one request under each policy.

    ``on_request`` is told the policy of each request served; where it raises KeyboardInterrupt,
    the results are those of the policies done by then.
    """
    results: list[Result] = []
    is_partial = False

    def watched(policy: str) -> Iterable[TraceRequest]:
        for request in trace:
            yield request
            on_request(policy)

    try:
        for name in policies:
            results.append(simulate(name, CONTESTANTS[name], watched(name), fleet))
    except KeyboardInterrupt:
        is_partial = True
    pooled = pooled_hit_rate(trace, fleet.num_nodes * fleet.num_blocks)
    return Comparison(len(trace), trace[0].block_size, fleet, results, pooled, is_partial)


def at_speed(trace: Iterable[TraceRequest], speed: float) -> list[TraceRequest]:
    """The same requests, ``speed`` times as fast one after the other."""
    return [replace(request, at=request.at / speed) for request in trace]


def _beats(one: Result, other: Result) -> bool:
    """Whether ``one`` is better at one thing and not worse at the other."""
    return (
        one.hit_rate >= other.hit_rate
        and one.ttft_mean <= other.ttft_mean
        and (one.hit_rate, one.ttft_mean) != (other.hit_rate, other.ttft_mean)
    )
