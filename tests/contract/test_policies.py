"""One suite for every routing policy, ours and the baselines: what the picker relies on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import fields
from math import isfinite
from typing import Any

import pytest

from prefix_cache.client import NodeState
from prefix_cache.replay.policies.block_lru import BlockLru
from prefix_cache.replay.policies.policy_comparison import CONTESTANTS
from prefix_cache.replay.policies.simulation import SimulatedNode
from router.conversations import Pin
from router.nodes import Node
from router.picker import pick
from router.policies import Candidate, Policy
from router.turn import ConversationKey, Prompt, Turn
from tests.router.dispatching import answer_all, dispatcher_over, key

NOW = 1000.0

BY_ORDER = ("round_robin", "random")
"""Those that go by the order of candidates."""

MakePolicy = Callable[[], Policy]


@pytest.fixture(params=CONTESTANTS, ids=str)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(name: str) -> MakePolicy:
    """Makes the policy, for nodes a to h whose caches are cold."""
    return lambda: CONTESTANTS[name](simulated("abcdefgh"))


def simulated(names: str) -> Mapping[str, SimulatedNode]:
    return {name: SimulatedNode(BlockLru(100), 1000.0) for name in names}


def ready_nodes(names: str) -> list[Node]:
    return [Node(name, "", state=NodeState.READY, incarnation=1) for name in names]


def busy_nodes() -> list[Node]:
    """Four nodes that differ in all that a policy may look at."""
    nodes = ready_nodes("abcd")
    for number, node in enumerate(nodes):
        node.in_flight = number
        node.in_flight_tokens = 3_000 * number
        node.queued_prefill = 700 * (3 - number)
        node.reported_running = 5 * (number % 2)
        node.recent_prefill.add(90_000 / (1 + number), NOW - 60)
        node.prefill_progress.waits("turn", 700, NOW - 1)
    return nodes


def candidates(nodes: Sequence[Node], home: str = "") -> list[Candidate]:
    return [Candidate(node, 512 * (ord(node.name) - ord("a")), node.name == home) for node in nodes]


def turns(count: int) -> list[Turn]:
    """Turns of as many conversations, every second one of none; some are unhashable."""
    return [
        Turn(
            None if number % 2 else key(number),
            Prompt(
                4_000,
                block_hashes=(b"shared", b"%d" % number) if number % 3 else (),
                block_size=512,
            ),
            number=number,
        )
        for number in range(count)
    ]


def state(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    names = {field.name for field in fields(Node)} - {"claims"}
    return [{name: deepcopy(getattr(node, name)) for name in names} for node in nodes]


@pytest.mark.parametrize("home", ["", "a", "d"], ids=["homeless", "home a", "home d"])
def test_every_candidate_gets_a_cost_of_as_many_parts_as_there_are_terms(
    make: MakePolicy, home: str
) -> None:
    policy = make()
    for turn in turns(20):
        costs = policy.costs(turn, candidates(busy_nodes(), home), NOW)
        assert len(costs) == 4
        for cost in costs:
            assert len(cost) == len(policy.terms)
            assert all(isfinite(part) for part in cost)


def test_a_single_candidate_is_chosen(make: MakePolicy) -> None:
    (node,) = ready_nodes("a")
    for turn in turns(9):
        for pin in (None, Pin(node.home, 100, 0.0, 0.0)):
            assert pick([node], turn, pin, make(), NOW).node is node


def test_asking_changes_nothing(make: MakePolicy) -> None:
    """Load is counted by whoever takes the choice, once."""
    nodes = busy_nodes()
    before = state(nodes)
    asked = candidates(nodes, "b")
    policy = make()

    for turn in turns(50):
        policy.costs(turn, asked, NOW)

    assert state(nodes) == before
    unasked = candidates(nodes, "b")
    assert [(each.node, each.cached_tokens, each.is_home) for each in asked] == [
        (each.node, each.cached_tokens, each.is_home) for each in unasked
    ]


def test_equal_questions_have_equal_answers(name: str, make: MakePolicy) -> None:
    """In the same process and in another; one that draws repeats itself from the same seed."""
    policy, another = make(), make()
    asked = candidates(busy_nodes(), "b")
    for turn in turns(50):
        costs = policy.costs(turn, asked, NOW)
        assert another.costs(turn, asked, NOW) == costs
        if name != "random":
            assert policy.costs(turn, asked, NOW) == costs


@pytest.mark.parametrize("name", [name for name in CONTESTANTS if name not in BY_ORDER])
def test_the_order_of_candidates_does_not_matter(make: MakePolicy) -> None:
    policy, asked = make(), candidates(busy_nodes(), "b")
    for turn in turns(50):
        costs = policy.costs(turn, asked, NOW)
        assert policy.costs(turn, asked[::-1], NOW) == costs[::-1]


def test_every_idle_node_is_chosen_now_and_then(make: MakePolicy) -> None:
    nodes, policy = ready_nodes("abcdefgh"), make()
    chosen = [pick(nodes, turn, None, policy, NOW).node.name for turn in turns(400)]
    assert set(chosen) == set("abcdefgh")


@pytest.mark.parametrize("with_conversation", [True, False], ids=["conversations", "single turns"])
def test_simultaneous_turns_do_not_herd(
    name: str, make: MakePolicy, with_conversation: bool
) -> None:
    """Choice and count are one step: 400 turns in flight at once over 8 idle nodes.

    No node gets more than about twice its share; one more than its share at most under a policy
    that goes by load.
    """
    dispatcher = dispatcher_over("abcdefgh")
    answer_all(dispatcher)
    dispatcher.pool("default").policy = make()

    routes = [
        dispatcher.route(
            Turn(
                ConversationKey("", f"chat-{number}") if with_conversation else None,
                Prompt(100, block_hashes=(b"%d" % number,), block_size=512),
            )
        )
        for number in range(400)
    ]

    counts = Counter(route.node.name for route in routes)
    by_load = ("sticky", "prefix", "least_load", "round_robin", "overlap_cost")
    assert max(counts.values()) <= (51 if name in by_load else 100)
    assert {node.name: node.in_flight for node in dispatcher.nodes()} == counts
    for route in routes:
        dispatcher.accepted(route)
        dispatcher.served(route, cached_tokens=0)
    assert [node.in_flight for node in dispatcher.nodes()] == [0] * 8
