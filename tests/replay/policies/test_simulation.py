"""The service model, by traces small enough to reckon by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from prefix_cache.replay.policies.simulation import Fleet, Result, SimulatedNode, simulate
from prefix_cache.replay.policies.trace import TraceRequest
from router.policies import Candidate, Cost, RoundRobin
from router.turn import Turn


def request(at: float, tokens: int, names: str, answer: int = 1) -> TraceRequest:
    return TraceRequest(at, tokens, answer, tuple(name.encode() for name in names), names[:2])


def fleet(num_nodes: int, event_lag: float = 0.0) -> Fleet:
    """Nodes that hold three blocks, and prefill one a second; an answer's token takes a second."""
    return Fleet(
        num_nodes=num_nodes,
        num_blocks=3,
        prefill_rate=512.0,
        seconds_per_output_token=1.0,
        event_lag=event_lag,
    )


TRACE = [
    request(0, 1024, "ab"),
    request(1, 1536, "abc"),
    request(10, 600, "de"),
    request(20, 1536, "abc"),
]


def test_one_node_serves_in_order_what_it_does_not_hold() -> None:
    """Blocks held: 0, 2, 0 and 1, as d and e evicted c and b.

    The first prefill ends at 2, so that the second, of one block, ends at 3.
    """
    assert simulate("any", lambda nodes: RoundRobin(), TRACE, fleet(1)) == Result(
        policy="any",
        hit_rate=3 / 10,
        uncached_tokens=1024 + 512 + 600 + 1024,
        eviction_tokens=1024,
        routing_tokens=0,
        imbalance=1.0,
        ttft_mean=(2 + 2 + 600 / 512 + 2) / 4,
        ttft_p50=2.0,
        ttft_p99=2.0,
    )


def test_two_nodes_in_turn_hold_blocks_twice_and_wait_for_nobody() -> None:
    """The first and third request go to one node, the others, of the same blocks, to the other."""
    assert simulate("turns", lambda nodes: RoundRobin(), TRACE, fleet(2)) == Result(
        policy="turns",
        hit_rate=3 / 10,
        uncached_tokens=1024 + 1536 + 600 + 0,
        eviction_tokens=0,
        routing_tokens=1024,
        imbalance=1624 * 2 / 3160,
        ttft_mean=(2 + 3 + 600 / 512 + 0) / 4,
        ttft_p50=2.0,
        ttft_p99=3.0,
    )


class Onlooker:
    """Takes the only node, and notes what a router can see of it."""

    terms = ()

    def __init__(self) -> None:
        self.held: list[int] = []
        self.homes: list[bool] = []
        self.loads: list[tuple[int, int, int]] = []

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        (candidate,) = candidates
        node = candidate.node
        self.held.append(candidate.cached_tokens)
        self.homes.append(candidate.is_home)
        self.loads.append((node.in_flight, node.queued_prefill, node.decoding))
        return [()]


def watch(trace: list[TraceRequest], event_lag: float = 0.0) -> Onlooker:
    onlooker = Onlooker()
    simulate("any", lambda nodes: onlooker, trace, fleet(1, event_lag))
    return onlooker


def test_the_router_learns_of_blocks_after_the_lag() -> None:
    trace = [request(at, 512, "a") for at in (0, 4, 5)]

    assert watch(trace, event_lag=5).held == [0, 0, 512]
    assert watch(trace, event_lag=0).held == [0, 512, 512]


def test_the_router_sees_a_turn_queued_then_decoding_then_gone() -> None:
    """Two blocks to prefill, then an answer of three seconds; the others have none to wait for."""
    trace = [request(0, 1024, "ab", 3), *(request(at, 1, "", 0) for at in (1, 3, 6))]

    assert watch(trace).loads == [(0, 0, 0), (1, 1024, 0), (1, 0, 1), (0, 0, 0)]


def test_a_conversation_is_at_home_where_its_last_turn_went() -> None:
    trace = [request(0, 512, "ab"), request(9, 512, "abc"), request(9, 512, "x")]

    assert watch(trace).homes == [False, True, False]


class Oracle(RoundRobin):
    """Notes what no router can see of the only node."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node
        self.seen: list[tuple[float, float, int]] = []

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        self.seen.append((now, self._node.free_at, self._node.uncached(turn.prompt)))
        return super().costs(turn, candidates, now)


def test_a_policy_may_be_given_what_no_router_sees() -> None:
    """At 1, the node is busy until 2, and holds two of three blocks already."""
    oracles: list[Oracle] = []

    def make(nodes: Mapping[str, SimulatedNode]) -> Oracle:
        oracles.extend(Oracle(node) for node in nodes.values())
        return oracles[0]

    simulate("oracle", make, TRACE[:2], fleet(1, event_lag=99))

    assert [oracle.seen for oracle in oracles] == [[(0, 0, 1024), (1, 2, 512)]]


def test_prompts_without_blocks_are_served_and_hit_nothing() -> None:
    result = simulate("any", lambda nodes: RoundRobin(), [request(0, 512, "")], fleet(1))

    assert (result.hit_rate, result.uncached_tokens, result.ttft_mean) == (0, 512, 1)


def test_the_99th_percentile_is_the_first_above_99_of_100() -> None:
    trace = [request(1000 * number, 512 * (number + 1), "") for number in range(100)]

    result = simulate("any", lambda nodes: RoundRobin(), [*trace, request(2e5, 1, "a")], fleet(1))

    assert [result.ttft_p50, result.ttft_p99] == pytest.approx([50, 99])
