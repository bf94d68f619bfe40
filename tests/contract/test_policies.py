"""One suite for every routing policy: what the picker and the dispatcher rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import copy
from random import Random

import pytest

from prefix_cache.client import NodeState, Outcome
from prefix_cache.errors import NoNodeAvailable
from router.config import RouterConfig
from router.conversations import Pin
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.picker import pick
from router.policies import POLICIES, Policy, RandomChoice
from router.turn import ConversationKey, Turn

MakePolicy = Callable[[], Policy]

# Every policy of the router, with the only one that draws made repeatable.
MAKERS: dict[str, MakePolicy] = {**POLICIES, "random": lambda: RandomChoice(Random(7))}


@pytest.fixture(params=MAKERS, ids=str)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def policy(name: str) -> Policy:
    return MAKERS[name]()


def ready_nodes(names: str) -> list[Node]:
    return [Node(name, f"127.0.0.1:{ord(name)}", NodeState.READY, 1) for name in names]


def turns(count: int, *exclude: str) -> list[Turn]:
    """Turns of as many conversations, every second one of none."""
    return [
        Turn(
            None if number % 2 else ConversationKey("", f"chat-{number}"),
            100,
            frozenset(exclude),
            number,
        )
        for number in range(count)
    ]


def test_only_ready_nodes_that_are_not_excluded_are_chosen(policy: Policy) -> None:
    nodes = ready_nodes("abcdef")
    nodes[0].state = NodeState.FAILED
    nodes[1].state = NodeState.DRAINING
    nodes[2].state = NodeState.JOINING
    pins = [None, *(Pin(node.home, 100, 0.0) for node in nodes)]

    chosen = {pick(nodes, turn, pin, policy).node.name for turn in turns(100, "d") for pin in pins}

    assert chosen == {"e", "f"}


def test_every_candidate_is_chosen_now_and_then(policy: Policy) -> None:
    nodes = ready_nodes("abcdefgh")

    assert {policy.choose(nodes, turn, None).name for turn in turns(200)} == set("abcdefgh")


def test_a_single_candidate_is_chosen(policy: Policy) -> None:
    (node,) = ready_nodes("a")

    assert all(
        policy.choose([node], turn, home) is node for turn in turns(9) for home in (node, None)
    )


def test_without_candidates_the_picker_says_so_before_it_asks(policy: Policy) -> None:
    with pytest.raises(NoNodeAvailable, match="a is excluded, b is excluded"):
        pick(ready_nodes("ab"), turns(1, "a", "b")[0], None, policy)


def test_choosing_changes_no_node(policy: Policy) -> None:
    """Load is counted by whoever takes the choice, once."""
    nodes = ready_nodes("abcd")
    before = [copy(node) for node in nodes]
    for turn in turns(50):
        policy.choose(nodes, turn, nodes[0])

    for node, earlier in zip(nodes, before, strict=True):
        assert {field: getattr(node, field) for field in Node.__slots__} == {
            field: getattr(earlier, field) for field in Node.__slots__
        }


@pytest.mark.parametrize("name", [name for name in MAKERS if name != "random"])
def test_who_asks_again_gets_the_same_answer(name: str, policy: Policy) -> None:
    """In the same process and in another; all but `random` promise it."""
    nodes = ready_nodes("abcd")
    nodes[2].in_flight_tokens = 500

    for turn in turns(50):
        first = policy.choose(nodes, turn, None)
        assert policy.choose(nodes, turn, None) is first
        assert MAKERS[name]().choose(nodes, turn, None) is first


@pytest.mark.parametrize("with_conversation", [True, False], ids=["conversations", "single turns"])
def test_simultaneous_turns_do_not_herd(name: str, with_conversation: bool) -> None:
    """Choice and count are one step: 400 turns in flight at once over 8 idle nodes.

    No node gets more than twice its share, under a policy that knows load one more at most.
    """
    dispatcher = Dispatcher(RouterConfig(nodes={n: f"h:{ord(n)}" for n in "abcdefgh"}, policy=name))
    for node in dispatcher.list_nodes():
        dispatcher.node_answered(node, 1)

    routed = [
        dispatcher.route(ConversationKey("", f"{n}") if with_conversation else None, 100)
        for n in range(400)
    ]

    counts = Counter(decision.node.name for _, decision in routed)
    assert max(counts.values()) <= (50 if name in ("sticky", "round_robin") else 100)
    assert {node.name: node.in_flight for node in dispatcher.list_nodes()} == counts
    for route_id, _ in routed:
        dispatcher.report(route_id, Outcome.OK)
    assert [node.in_flight for node in dispatcher.list_nodes()] == [0] * 8
