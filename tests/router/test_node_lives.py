"""What becomes of conversations when nodes fail, restart, drain, come and go."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import InvalidArgument, NoNodeAvailable
from router.config import NodeSpec
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.open_routes import OpenRoute
from tests.router.dispatching import (
    CHAT,
    dispatcher_over,
    key,
    load,
    remember_texts,
    serve,
    turn,
)

MOVED, PINNED = RouteReason.MOVED, RouteReason.PINNED


@pytest.fixture
def dispatcher() -> Dispatcher:
    return dispatcher_over("abc")


def told(route: OpenRoute) -> tuple[RouteReason, str, int]:
    """What the conversation learns of its move."""
    return route.decision.reason, route.decision.moved_from, route.decision.lost_tokens


def test_a_failed_node_gets_no_turn_until_it_is_probed(dispatcher: Dispatcher) -> None:
    """F099: the second attempt goes elsewhere, and so does every other conversation's first."""
    home = serve(dispatcher).node
    dispatcher.failed(dispatcher.route(turn()), "connection refused")

    retried = serve(dispatcher)
    served = [serve(dispatcher, key(number)).node for number in range(10)]

    assert told(retried) == (MOVED, home.name, 100)
    assert home not in [retried.node, *served]
    assert (home.state, home.failures, home.in_flight) == (NodeState.FAILED, 1, 0)

    dispatcher.node_answered(home, 2)
    assert home.state is NodeState.READY


def test_a_failing_node_says_what_is_lost(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [key(number) for number in range(30)]
    homes = {each: serve(dispatcher, each, 1000).node for each in keys}
    lost_node = homes[keys[0]]
    held = Counter(homes.values())[lost_node]
    dispatcher.route(turn(keys[0], 1100))

    with caplog.at_level(logging.WARNING):
        dispatcher.node_failed(lost_node, "connection refused")
        dispatcher.node_failed(lost_node, "connection refused")

    assert caplog.messages == [
        f"node {lost_node.name} failed (connection refused): {held} conversations with "
        f"{held * 1000} committed tokens are pinned there, 1 turns are in flight"
    ]
    assert (lost_node.failures, lost_node.lost_tokens) == (1, held * 1000)


def test_each_conversation_is_told_of_its_loss_once(dispatcher: Dispatcher) -> None:
    home = serve(dispatcher, CHAT, 480).node
    dispatcher.node_failed(home, "gone")

    moved = serve(dispatcher, CHAT, 600)

    assert told(moved) == (MOVED, home.name, 480)
    again = serve(dispatcher, CHAT, 700)
    assert (again.node, again.decision.reason) == (moved.node, PINNED)


def test_turns_that_come_together_after_a_loss_move_together(dispatcher: Dispatcher) -> None:
    """The first is told of the loss, and the others follow it though it has not answered yet."""
    home = serve(dispatcher, CHAT, 480).node
    dispatcher.node_failed(home, "gone")

    first, *others = [dispatcher.route(turn(tokens=10_000)) for _ in range(5)]

    assert told(first) == (MOVED, home.name, 480)
    assert {other.node for other in others} == {first.node}
    assert {other.decision.reason for other in others} == {PINNED}


def test_a_restarted_node_holds_none_of_its_old_conversations(dispatcher: Dispatcher) -> None:
    home = serve(dispatcher, CHAT, 480).node
    dispatcher.node_failed(home, "killed")
    dispatcher.node_answered(home, 2)

    route = serve(dispatcher, CHAT, 600)

    assert told(route) == (MOVED, home.name, 480)
    assert serve(dispatcher, CHAT, 700).decision.reason is PINNED


def test_a_restart_between_two_probes_is_a_failure_too(dispatcher: Dispatcher) -> None:
    home = serve(dispatcher, CHAT, 480).node

    dispatcher.node_answered(home, 2)

    assert (home.state, home.failures, home.lost_tokens) == (NodeState.READY, 1, 480)
    assert dispatcher.route(turn()).decision.reason is MOVED


def test_the_first_sight_of_a_life_is_no_restart(dispatcher: Dispatcher) -> None:
    """Its cache node came after its engine; until then its life was unknown."""
    late = dispatcher.add_node("default", NodeSpec("late", "h:1"))
    for name in "abc":
        dispatcher.node_failed(dispatcher.node(name), "the test wants one")
    dispatcher.node_answered(late, 0)
    serve(dispatcher, CHAT, 480)
    before = dispatcher.route(turn(key("before"), text=b"x"))

    dispatcher.node_answered(late, 7)
    dispatcher.served(before, cached_tokens=0)
    dispatcher.node_answered(dispatcher.node("a"), 1)

    assert (late.state, late.failures) == (NodeState.READY, 0)
    assert dispatcher.holdings(late).committed_tokens == 480
    assert dispatcher.route(turn()).decision.reason is PINNED
    dispatcher.node_answered(late, 8)
    assert late.failures == 1
    assert dispatcher.holdings(late).committed_tokens == 0
    assert dispatcher.decide(turn()).reason is MOVED


def test_a_node_back_in_the_same_life_still_holds_its_conversations(
    dispatcher: Dispatcher,
) -> None:
    """A false alarm costs at most the turns routed meanwhile."""
    home = serve(dispatcher, CHAT, 480).node
    dispatcher.node_failed(home, "no answer within 5 s")
    away = dispatcher.route(turn())
    assert away.decision.reason is MOVED
    dispatcher.not_served(away)

    dispatcher.node_answered(home, 1)

    back = serve(dispatcher)
    assert (back.node, back.decision.reason) == (home, PINNED)


def test_reports_of_a_failure_that_was_mended_since_are_old_news(dispatcher: Dispatcher) -> None:
    """50 turns break off at once; the last of their reports comes after the node is back."""
    home = serve(dispatcher).node
    routes = [dispatcher.route(turn()) for _ in range(50)]
    for route in routes[:49]:
        dispatcher.failed(route, "broke off")
    dispatcher.node_answered(home, 2)

    dispatcher.failed(routes[49], "broke off")

    assert (home.state, home.failures) == (NodeState.READY, 1)


def test_a_turn_accepted_by_a_life_that_ended_makes_no_home_in_the_next(
    dispatcher: Dispatcher,
) -> None:
    route = dispatcher.route(turn())
    dispatcher.node_failed(route.node, "killed")
    dispatcher.node_answered(route.node, 2)
    dispatcher.accepted(route, committed_tokens=96)
    dispatcher.served(route, cached_tokens=0)

    assert told(dispatcher.route(turn())) == (MOVED, route.node.name, 96)


def test_a_draining_node_loses_its_conversations_one_turn_at_a_time(
    dispatcher: Dispatcher,
) -> None:
    home = serve(dispatcher, CHAT, 480).node
    dispatcher.node_draining(home)

    away = dispatcher.route(turn())
    dispatcher.not_served(away)

    assert told(away) == (MOVED, home.name, 480)
    assert (home.state, home.failures) == (NodeState.DRAINING, 0)
    dispatcher.node_answered(home, 1)
    assert serve(dispatcher).node is home


def test_who_tells_a_node_to_drain_is_obeyed_until_he_takes_it_back(
    dispatcher: Dispatcher,
) -> None:
    """Whatever its probes say, and even when it fails in between."""
    home = serve(dispatcher).node

    def state() -> NodeState:
        return home.state

    dispatcher.drain(home.name)
    assert state() is NodeState.DRAINING
    dispatcher.node_answered(home, 1)
    assert state() is NodeState.DRAINING
    dispatcher.node_failed(home, "killed")
    dispatcher.node_answered(home, 2)
    assert state() is NodeState.DRAINING
    assert dispatcher.route(turn()).node is not home

    dispatcher.drain(home.name, drain=False)
    assert state() is NodeState.JOINING
    dispatcher.node_answered(home, 2)
    assert state() is NodeState.READY


def test_with_every_node_failed_turns_are_refused_and_counted_nowhere(
    dispatcher: Dispatcher,
) -> None:
    for node in dispatcher.nodes():
        dispatcher.node_failed(node, "gone")

    with pytest.raises(NoNodeAvailable, match="a is FAILED, b is FAILED, c is FAILED"):
        dispatcher.route(turn())

    assert load(dispatcher) == {"a": (0, 0), "b": (0, 0), "c": (0, 0)}
    assert dispatcher.turns_routed == 0


def test_a_node_that_serves_other_models_is_left_out(dispatcher: Dispatcher) -> None:
    a, b, c = dispatcher.nodes()
    a.models, b.models = frozenset({"llama"}), frozenset({"qwen"})
    c.models = frozenset({"qwen", "llama"})

    chosen = {dispatcher.route(turn(None, model="llama")).node for _ in range(20)}

    assert chosen == {a, c}
    with pytest.raises(NoNodeAvailable, match="a does not serve 'gpt', b does not serve 'gpt'"):
        dispatcher.route(turn(model="gpt"))
    a.models = frozenset()  # not known: it may
    assert dispatcher.route(turn(model="gpt")).node is a


def test_a_turn_that_is_to_be_forwarded_goes_to_a_node_with_an_engine(
    dispatcher: Dispatcher,
) -> None:
    dispatcher.node("b").url = "http://127.0.0.1:8000"
    forwarded = turn(None)
    forwarded.needs_url = True

    assert {dispatcher.route(forwarded).node.name for _ in range(9)} == {"b"}
    forwarded.exclude = frozenset("b")
    with pytest.raises(NoNodeAvailable, match="a has no URL, b is excluded, c has no URL"):
        dispatcher.route(forwarded)


def test_a_node_taken_out_is_never_chosen_and_claims_nothing(dispatcher: Dispatcher) -> None:
    """F090: what still runs there when it goes may end, and claims nothing any more."""
    claims = remember_texts(dispatcher)
    first = dispatcher.route(turn(text=b"hello"))
    dispatcher.accepted(first)
    dispatcher.served(first, cached_tokens=0)
    late = dispatcher.route(turn(text=b"hello"))
    gone = first.node
    assert late.node is gone

    dispatcher.remove_node(gone)
    dispatcher.served(late, cached_tokens=0)
    dispatcher.node_answered(gone, 1)
    dispatcher.node_draining(gone)
    dispatcher.node_failed(gone, "old news")

    assert (gone.state, gone.in_flight, gone.failures) == (NodeState.GONE, 0, 0)
    assert claims[gone.name].texts == []
    assert gone not in list(dispatcher.nodes())
    assert told(serve(dispatcher)) == (MOVED, gone.name, 100)


def test_a_node_added_is_chosen_once_it_answered(dispatcher: Dispatcher) -> None:
    added = dispatcher.add_node("default", NodeSpec("d", "127.0.0.1:100"))
    assert added.state is NodeState.JOINING
    assert added not in {dispatcher.route(turn(None, 10)).node for _ in range(12)}

    dispatcher.node_answered(added, 1)

    assert added in {dispatcher.route(turn(None, 10)).node for _ in range(12)}
    with pytest.raises(InvalidArgument, match="two nodes are named 'd'"):
        dispatcher.add_node("default", NodeSpec("d", "127.0.0.1:101"))


def test_a_node_back_under_its_name_and_in_its_life_is_home_again(dispatcher: Dispatcher) -> None:
    """As when a DNS answer was incomplete for a moment."""
    home = serve(dispatcher).node
    dispatcher.remove_node(home)
    again = dispatcher.add_node("default", NodeSpec(home.name, home.address))
    dispatcher.node_answered(again, 1)

    route = serve(dispatcher)

    assert (route.node, route.decision.reason) == (again, PINNED)


@pytest.mark.parametrize("policy", ["sticky", "hash"])
def test_when_the_fleet_changes_only_those_concerned_move(policy: str) -> None:
    """F063: 1000 conversations on 4 nodes; a fifth is added, then the first taken out.

    Pinned ones stay at home; without pins about a fifth moves, and only to the new node.
    """
    dispatcher = dispatcher_over("abcd", policy=policy)
    keys = [key(number) for number in range(1000)]

    def placed() -> dict[object, str]:
        return {each: serve(dispatcher, each, 10).node.name for each in keys}

    before = placed()
    dispatcher.node_answered(dispatcher.add_node("default", NodeSpec("e", "h:5")), 1)
    with_e = placed()
    dispatcher.remove_node(dispatcher.node("a"))
    without_a = placed()

    moved = {each for each in keys if before[each] != with_e[each]}
    assert {with_e[each] for each in moved} <= {"e"}
    assert (len(moved) == 0) if policy == "sticky" else (150 <= len(moved) <= 250)
    stayed = {each: node for each, node in with_e.items() if node != "a"}
    assert {each: without_a[each] for each in stayed} == stayed
    assert set(without_a.values()) == (set("bcd") if not moved else set("bcde")) | {"e"}


def test_unknown_nodes_are_named(dispatcher: Dispatcher) -> None:
    with pytest.raises(InvalidArgument, match="unknown node 'z': expected one of a, b, c"):
        dispatcher.node("z")


def test_nodes_of_equal_name_in_two_lives_are_two_objects(dispatcher: Dispatcher) -> None:
    """Load of the one that went is not load of the one that came."""
    route = dispatcher.route(turn())
    old = route.node
    dispatcher.remove_node(old)
    new: Node = dispatcher.add_node("default", NodeSpec(old.name, old.address))

    dispatcher.served(route, cached_tokens=0)

    assert (old.in_flight, old.turns, new.in_flight, new.turns) == (0, 1, 0, 0)
