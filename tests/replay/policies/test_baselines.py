"""The policies of other routers do what their descriptions say."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from prefix_cache.replay.policies.baselines import (
    BoundedHeadHash,
    CacheAware,
    ExactWork,
    HeadHash,
    OverlapCost,
    PrefixOrTokens,
)
from prefix_cache.replay.policies.block_lru import BlockLru
from prefix_cache.replay.policies.simulation import SimulatedNode
from router.nodes import Node
from router.policies import Candidate, Policy
from router.turn import Prompt, Turn
from tests.router.dispatching import key

NOW = 100.0


def turn(*blocks: bytes, tokens: int = 1_000, chat: str = "chat") -> Turn:
    return Turn(key(chat), Prompt(tokens, block_hashes=blocks, block_size=512))


def fleet(cached: Mapping[str, int] | None = None) -> dict[str, Candidate]:
    return {
        name: Candidate(Node(name, ""), (cached or {}).get(name, 0), is_home=False)
        for name in "abcd"
    }


def cheapest(policy: Policy, asked: Turn, candidates: dict[str, Candidate]) -> set[str]:
    """Names of the nodes that cost least."""
    costs = policy.costs(asked, list(candidates.values()), NOW)
    sums = [sum(cost) for cost in costs]
    return {name for name, cost in zip(candidates, sums, strict=True) if cost == min(sums)}


@pytest.mark.parametrize("policy", [HeadHash(2), BoundedHeadHash(2, 1.25)], ids=["head", "bounded"])
def test_head_hash_goes_by_the_first_blocks_alone(policy: Policy) -> None:
    chosen = {
        head: cheapest(policy, turn(b"system", head, b"rest"), fleet({"a": 512}))
        for head in (b"%d" % number for number in range(50))
    }

    assert set().union(*chosen.values()) == set("abcd")
    for head, node in chosen.items():
        assert len(node) == 1
        assert cheapest(policy, turn(b"system", head, chat="other"), fleet()) == node


def test_bounded_head_hash_passes_over_a_node_with_too_many_turns() -> None:
    """With 8 in flight a node may have 1.25 x 9 / 4 turns with the new one, so 2."""
    policy, asked, candidates = BoundedHeadHash(2, 1.25), turn(b"a", b"b"), fleet()
    (first,) = cheapest(HeadHash(2), asked, candidates)

    candidates[first].node.in_flight = 8
    (second,) = cheapest(policy, asked, candidates)
    assert second != first
    for candidate in candidates.values():
        candidate.node.in_flight = 2
    assert cheapest(policy, asked, candidates) == {first}
    candidates[first].node.in_flight = 1
    candidates[second].node.in_flight = 3
    assert cheapest(policy, asked, candidates) == {first}


def test_cache_aware_takes_the_longest_prefix_only_where_it_is_long_and_load_is_even() -> None:
    policy = CacheAware(threshold=0.3, most_apart=64, most_times=1.5)
    candidates = fleet({"a": 301, "b": 200})
    candidates["a"].node.in_flight = 64
    assert cheapest(policy, turn(), candidates) == {"a"}

    candidates["a"].node.in_flight = 65
    candidates["d"].node.in_flight = 1
    assert cheapest(policy, turn(), candidates) == {"b", "c"}

    candidates["a"].node.in_flight = 5
    candidates["a"].cached_tokens = 300
    assert cheapest(policy, turn(), candidates) == {"b", "c"}


def test_prefix_or_tokens_counts_tokens_in_flight_where_no_prefix_is_long() -> None:
    candidates = fleet({"a": 301, "b": 301, "c": 300})
    for number, candidate in enumerate(candidates.values()):
        candidate.node.in_flight_tokens = 1_000 * (5 - number)

    assert cheapest(PrefixOrTokens(0.3), turn(), candidates) == {"b"}
    assert cheapest(PrefixOrTokens(0.31), turn(), candidates) == {"d"}


def test_overlap_cost_weighs_prefill_against_blocks_in_use() -> None:
    candidates = fleet({"a": 512})
    candidates["a"].node.in_flight_tokens = 1_023
    for name in "bcd":
        candidates[name].node.queued_prefill = 100_000
    assert cheapest(OverlapCost(1.0), turn(), candidates) == {"a"}

    candidates["b"].node.queued_prefill = 0
    assert cheapest(OverlapCost(1.0), turn(), candidates) == {"b"}
    assert cheapest(OverlapCost(2.0), turn(), candidates) == {"a"}


def test_exact_work_sees_what_claims_do_not_yet_tell() -> None:
    """Node b holds a block, but is busy for 1 s, in which it prefills 1,000 tokens."""
    nodes = {name: SimulatedNode(BlockLru(10), 1_000.0) for name in "abcd"}
    nodes["b"].cache.use((b"first",))
    nodes["b"].free_at = NOW + 1
    asked = turn(b"first", b"second")

    assert cheapest(ExactWork(0.25, nodes), asked, fleet({"c": 1_000})) == {"b"}
    assert cheapest(ExactWork(1.0, nodes), asked, fleet({"c": 1_000})) == {"a", "c", "d"}
