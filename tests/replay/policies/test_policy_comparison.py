"""Policies beside each other: the frontier, and what they make of real traffic."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefix_cache.replay.formats import ReadOptions, Source
from prefix_cache.replay.policies.policy_comparison import (
    CONTESTANTS,
    Comparison,
    at_speed,
    compare,
)
from prefix_cache.replay.policies.simulation import Fleet, Result
from prefix_cache.replay.policies.trace import TraceRequest, trace_of


def result(policy: str, hit_rate: float, ttft_mean: float) -> Result:
    return Result(policy, hit_rate, 1000, 300, 200, 1.0, ttft_mean, 1.0, 9.0)


def test_the_frontier_is_what_no_other_policy_beats() -> None:
    results = [
        result("fast", 0.1, 1.0),
        result("middling", 0.2, 2.0),
        result("as middling", 0.2, 2.0),
        result("slower", 0.2, 2.1),
        result("worse at both", 0.15, 2.2),
        result("thrifty", 0.3, 3.0),
    ]

    comparison = Comparison(10, 512, Fleet(), results, 0.4)

    assert comparison.frontier() == ["fast", "middling", "as middling", "thrifty"]


def test_everything_is_json() -> None:
    comparison = Comparison(
        10, 512, Fleet(num_nodes=2, num_blocks=7), [result("one", 0.1, 1.0)], 0.4
    ).as_json()

    assert json.loads(json.dumps(comparison)) == {
        "requests": 10,
        "nodes": 2,
        "blocks": 7,
        "block_size": 512,
        "prefill_rate": 8000.0,
        "event_lag": 0.05,
        "pooled_lru_hit_rate": 0.4,
        "policies": [
            {
                "policy": "one",
                "hit_rate": 0.1,
                "uncached_tokens": 1000,
                "eviction_tokens": 300,
                "routing_tokens": 200,
                "imbalance": 1.0,
                "ttft_mean": 1.0,
                "ttft_p50": 1.0,
                "ttft_p99": 9.0,
            }
        ],
        "frontier": ["one"],
    }


def test_every_request_is_told_of_under_every_policy() -> None:
    trace = [TraceRequest(float(at), 512, 1, (b"a",), "chat") for at in range(3)]
    told: list[str] = []

    comparison = compare(trace, Fleet(num_nodes=2), ["hash", "round_robin"], told.append)

    assert told == ["hash"] * 3 + ["round_robin"] * 3
    assert [(each.policy, each.hit_rate) for each in comparison.results] == [
        ("hash", 2 / 3),
        ("round_robin", 1 / 3),
    ]
    assert comparison.pooled_hit_rate == 2 / 3


def test_speed_shortens_the_time_between_requests() -> None:
    trace = [TraceRequest(at, 512, 1, (b"a",), "chat") for at in (0.0, 3.0)]

    assert [request.at for request in at_speed(trace, 1.5)] == [0.0, 2.0]


def mooncake(shared_data: Path) -> list[TraceRequest]:
    path = shared_data / "traces" / "mooncake_conversation_trace.jsonl.gz"
    source = Source(path, ReadOptions())
    return trace_of(source, source.grain, 512)


@pytest.mark.parametrize("blocks", [1_000, 3_000, 10_000])
def test_sticky_hits_as_one_cache_would_and_answers_about_as_soon_as_an_oracle(
    shared_data: Path, blocks: int
) -> None:
    """The oracle minimises the time to the first token, and has the best of all baselines."""
    comparison = compare(
        mooncake(shared_data),
        Fleet(num_nodes=8, num_blocks=blocks),
        ["sticky", "exact_ttft"],
    )

    sticky, oracle = comparison.results
    assert sticky.hit_rate >= 0.98 * comparison.pooled_hit_rate
    assert sticky.ttft_mean <= 1.1 * oracle.ttft_mean
    assert sticky.ttft_p99 <= 1.1 * oracle.ttft_p99
    assert sticky.imbalance <= 1.05


def test_random_loses_what_sticky_keeps(shared_data: Path) -> None:
    """The arm that must lose, on a fifth of the trace."""
    trace = mooncake(shared_data)[:2_400]

    sticky, random = compare(trace, Fleet(), ["sticky", "random"]).results

    assert random.hit_rate <= 0.5 * sticky.hit_rate
    assert random.ttft_mean >= 2 * sticky.ttft_mean


def test_the_contestants_are_ours_and_the_baselines() -> None:
    assert list(CONTESTANTS) == [
        "sticky",
        "prefix",
        "least_load",
        "hash",
        "round_robin",
        "random",
        "head_hash",
        "bounded_head_hash",
        "cache_aware",
        "prefix_or_tokens",
        "overlap_cost",
        "exact_work",
        "exact_ttft",
    ]
