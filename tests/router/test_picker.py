"""Filter, choose, explain."""

from __future__ import annotations

import pytest

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import NoNodeAvailable
from router.conversations import Pin
from router.nodes import Home, Node
from router.picker import Decision, pick
from router.policies import RoundRobin, Sticky
from router.turn import ConversationKey, Turn


def node(name: str, state: NodeState = NodeState.READY, incarnation: int = 1) -> Node:
    return Node(name, f"127.0.0.1:{ord(name)}", state, incarnation)


def turn(*exclude: str, number: int = 0) -> Turn:
    return Turn(ConversationKey("", "chat"), 100, frozenset(exclude), number)


def pin(name: str, incarnation: int = 1) -> Pin:
    return Pin(Home(name, incarnation), 480, 0.0)


def test_a_pinned_conversation_goes_home() -> None:
    a, b = node("a"), node("b")
    a.in_flight_tokens = 1_000_000

    assert pick([a, b], turn(), pin("a"), Sticky()) == Decision(a, RouteReason.PINNED)


def test_a_conversation_without_a_pin_is_new() -> None:
    a, b = node("a"), node("b")
    a.in_flight_tokens = 1

    assert pick([a, b], turn(), None, Sticky()) == Decision(b, RouteReason.NEW)


@pytest.mark.parametrize("state", [NodeState.JOINING, NodeState.FAILED, NodeState.DRAINING])
def test_a_home_that_cannot_take_the_turn_is_left_and_the_loss_named(state: NodeState) -> None:
    a, b = node("a", state), node("b")

    assert pick([a, b], turn(), pin("a"), Sticky()) == Decision(b, RouteReason.MOVED, "a", 480)


def test_an_excluded_home_is_left() -> None:
    a, b = node("a"), node("b")

    assert pick([a, b], turn("a"), pin("a"), Sticky()) == Decision(b, RouteReason.MOVED, "a", 480)


def test_a_restarted_home_lost_the_conversation_even_where_it_is_chosen_again() -> None:
    a = node("a", incarnation=2)

    assert pick([a], turn(), pin("a", 1), Sticky()) == Decision(a, RouteReason.MOVED, "a", 480)


def test_a_home_that_is_no_node_any_more_is_left() -> None:
    a = node("a")

    assert pick([a], turn(), pin("gone"), Sticky()) == Decision(a, RouteReason.MOVED, "gone", 480)


def test_a_policy_that_ignores_pins_is_told_on() -> None:
    """Round robin leaves a healthy home; the decision says what that may cost."""
    a, b = node("a"), node("b")

    assert pick([a, b], turn(number=0), pin("a"), RoundRobin()).reason is RouteReason.PINNED
    assert pick([a, b], turn(number=1), pin("a"), RoundRobin()) == Decision(
        b, RouteReason.MOVED, "a", 480
    )


def test_with_no_node_left_the_error_says_why_for_each() -> None:
    nodes = [
        node("a", NodeState.FAILED),
        node("b", NodeState.DRAINING),
        node("c"),
        node("d", NodeState.JOINING),
    ]

    with pytest.raises(NoNodeAvailable) as caught:
        pick(nodes, turn("c", "unheard-of"), None, Sticky())

    assert str(caught.value) == (
        "no node can take the turn: a is FAILED, b is DRAINING, c is excluded, d is JOINING"
    )
    assert caught.value.details == {
        "nodes": "a is FAILED, b is DRAINING, c is excluded, d is JOINING"
    }
