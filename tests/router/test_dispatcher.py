"""Stories of turns: routed, reported, and what a failing node does to them."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from prefix_cache.client import NodeState, Outcome, RouteReason
from prefix_cache.errors import InvalidArgument, NoNodeAvailable, UnknownRoute
from router.config import RouterConfig
from router.dispatcher import Dispatcher
from router.picker import Decision
from router.turn import ConversationKey
from tests.router.clock import Clock

CHAT = ConversationKey("", "chat")


@pytest.fixture
def clock() -> Clock:
    return Clock()


def dispatcher_over(names: str, clock: Clock, policy: str = "sticky") -> Dispatcher:
    """A router whose nodes answered their first probe: every incarnation is 1."""
    config = RouterConfig(
        nodes={name: f"127.0.0.1:{ord(name)}" for name in names},
        policy=policy,
        pin_ttl_s=1000.0,
        route_ttl_s=60.0,
    )
    dispatcher = Dispatcher(config, clock=clock)
    for node in dispatcher.list_nodes():
        dispatcher.node_answered(node, 1)
    return dispatcher


@pytest.fixture
def dispatcher(clock: Clock) -> Dispatcher:
    return dispatcher_over("abc", clock)


def serve(dispatcher: Dispatcher, key: ConversationKey | None, tokens: int = 100) -> Decision:
    """One whole turn; all its tokens are committed."""
    route_id, decision = dispatcher.route(key, tokens)
    dispatcher.report(route_id, Outcome.OK, committed_tokens=tokens)
    return decision


def load(dispatcher: Dispatcher) -> dict[str, tuple[int, int]]:
    return {node.name: (node.in_flight, node.in_flight_tokens) for node in dispatcher.list_nodes()}


NO_LOAD = {"a": (0, 0), "b": (0, 0), "c": (0, 0)}


def test_a_conversation_stays_home(dispatcher: Dispatcher) -> None:
    first = serve(dispatcher, CHAT)

    later = [serve(dispatcher, CHAT, 100 * turn) for turn in range(2, 11)]

    assert first.reason is RouteReason.NEW
    assert later == [Decision(first.node, RouteReason.PINNED)] * 9


def test_nothing_is_recorded_until_the_turn_is_served(dispatcher: Dispatcher) -> None:
    """Neither asking twice nor a turn that was not served makes a home."""
    for outcome in (Outcome.NOT_SERVED, Outcome.NOT_SERVED, Outcome.OK):
        route_id, decision = dispatcher.route(CHAT, 100)
        assert decision.reason is RouteReason.NEW
        assert len(dispatcher.conversations) == 0
        dispatcher.report(route_id, outcome, committed_tokens=96)

    assert dispatcher.route(CHAT, 100)[1] == Decision(decision.node, RouteReason.PINNED)


def test_a_turn_not_served_leaves_the_node_and_the_pin_alone(dispatcher: Dispatcher) -> None:
    """20 bad requests are no failure of the node."""
    home = serve(dispatcher, CHAT).node
    for _ in range(20):
        route_id, _ = dispatcher.route(CHAT, 100)
        dispatcher.report(route_id, Outcome.NOT_SERVED)

    assert (home.state, home.failures, home.turns) == (NodeState.READY, 0, 1)
    assert serve(dispatcher, CHAT) == Decision(home, RouteReason.PINNED)


def test_served_turns_add_up(dispatcher: Dispatcher) -> None:
    route_id, decision = dispatcher.route(CHAT, 1200)
    dispatcher.report(route_id, Outcome.OK, cached_tokens=0, committed_tokens=1700)
    route_id, _ = dispatcher.route(CHAT, 1900)
    dispatcher.report(route_id, Outcome.OK, cached_tokens=1696, committed_tokens=2400)

    node = decision.node
    assert (node.turns, node.prompt_tokens, node.cached_tokens) == (2, 3100, 1696)
    assert dispatcher.conversations.holdings(node.home).committed_tokens == 2400


def test_a_report_of_more_cached_tokens_than_the_prompt_has_changes_nothing(
    dispatcher: Dispatcher,
) -> None:
    route_id, decision = dispatcher.route(CHAT, 10)

    with pytest.raises(InvalidArgument, match="1000000 cached tokens were reported") as caught:
        dispatcher.report(route_id, Outcome.OK, cached_tokens=1_000_000, committed_tokens=10)

    assert caught.value.details == {"cached_tokens": 1_000_000, "prompt_tokens": 10}
    assert (decision.node.in_flight, decision.node.turns) == (1, 0)
    dispatcher.report(route_id, Outcome.OK, cached_tokens=10, committed_tokens=10)
    assert (decision.node.turns, decision.node.cached_tokens) == (1, 10)
    assert load(dispatcher) == NO_LOAD


@pytest.mark.parametrize("outcome", Outcome)
def test_load_rises_with_the_route_and_is_gone_with_any_report(
    dispatcher: Dispatcher, outcome: Outcome
) -> None:
    ids = [dispatcher.route(None, 10)[0] for _ in range(90)]
    assert load(dispatcher) == {"a": (30, 300), "b": (30, 300), "c": (30, 300)}

    for route_id in ids:
        dispatcher.report(route_id, outcome)

    assert load(dispatcher) == NO_LOAD


def test_load_of_turns_never_reported_comes_back_too(dispatcher: Dispatcher, clock: Clock) -> None:
    overdue = [dispatcher.route(None, 10)[0] for _ in range(9)]
    clock.advance(60)

    assert load(dispatcher) == NO_LOAD
    with pytest.raises(UnknownRoute):
        dispatcher.report(overdue[0], Outcome.OK)


def test_overdue_turns_do_not_weigh_on_the_next_choice(clock: Clock) -> None:
    dispatcher = dispatcher_over("ab", clock)
    _, first = dispatcher.route(None, 1000)
    clock.advance(30)
    _, second = dispatcher.route(None, 10)
    assert second.node is not first.node
    clock.advance(30)

    assert dispatcher.route(None, 10)[1].node is first.node


def test_probes_never_touch_load(dispatcher: Dispatcher) -> None:
    """50 turns stay 50, whatever a probe says in between."""
    ids = [dispatcher.route(None, 10)[0] for _ in range(51)]
    before = load(dispatcher)
    for node in dispatcher.list_nodes():
        dispatcher.node_answered(node, 1)
        dispatcher.node_draining(node)
        dispatcher.node_failed(node, "no answer")
        dispatcher.node_answered(node, 2)

    assert load(dispatcher) == before == {"a": (17, 170), "b": (17, 170), "c": (17, 170)}
    for route_id in ids:
        dispatcher.report(route_id, Outcome.OK)
    assert load(dispatcher) == NO_LOAD


def test_a_report_of_an_unknown_route_changes_nothing(dispatcher: Dispatcher) -> None:
    route_id, _ = dispatcher.route(CHAT, 100)
    dispatcher.report(route_id, Outcome.OK, committed_tokens=96)

    for unknown in (route_id, 1, 0):
        with pytest.raises(UnknownRoute):
            dispatcher.report(unknown, Outcome.NODE_FAILED)

    assert [node.failures for node in dispatcher.list_nodes()] == [0, 0, 0]
    assert sum(node.turns for node in dispatcher.list_nodes()) == 1


def test_a_failed_node_gets_no_turn_until_it_is_probed(dispatcher: Dispatcher) -> None:
    """The second attempt goes elsewhere, and so does every other conversation's first."""
    home = serve(dispatcher, CHAT).node
    route_id, _ = dispatcher.route(CHAT, 100)
    dispatcher.report(route_id, Outcome.NODE_FAILED)

    retried = serve(dispatcher, CHAT)
    served = [serve(dispatcher, ConversationKey("", f"{n}")).node for n in range(10)]

    assert retried == Decision(retried.node, RouteReason.MOVED, home.name, 100)
    assert home not in [retried.node, *served]
    assert (home.state, home.failures, home.in_flight) == (NodeState.FAILED, 1, 0)

    dispatcher.node_answered(home, 2)
    assert home.state is NodeState.READY


def test_a_failing_node_says_what_is_lost(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    keys = [ConversationKey("", f"{n}") for n in range(30)]
    homes = {key: serve(dispatcher, key, 1000).node for key in keys}
    lost_node = homes[keys[0]]
    held = Counter(homes.values())[lost_node]
    dispatcher.route(keys[0], 1100)

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

    assert moved == Decision(moved.node, RouteReason.MOVED, home.name, 480)
    assert serve(dispatcher, CHAT, 700) == Decision(moved.node, RouteReason.PINNED)


def test_a_restarted_node_holds_none_of_its_old_conversations(dispatcher: Dispatcher) -> None:
    home = serve(dispatcher, CHAT, 480).node
    dispatcher.node_failed(home, "killed")
    dispatcher.node_answered(home, 2)

    decision = serve(dispatcher, CHAT, 600)

    assert (decision.reason, decision.moved_from, decision.lost_tokens) == (
        RouteReason.MOVED,
        home.name,
        480,
    )
    assert serve(dispatcher, CHAT, 700) == Decision(decision.node, RouteReason.PINNED)


def test_a_restart_between_two_probes_is_a_failure_too(dispatcher: Dispatcher) -> None:
    home = serve(dispatcher, CHAT, 480).node

    dispatcher.node_answered(home, 2)

    assert (home.state, home.failures, home.lost_tokens) == (NodeState.READY, 1, 480)
    assert dispatcher.route(CHAT, 500)[1].reason is RouteReason.MOVED


def test_a_node_back_in_the_same_life_still_holds_its_conversations(
    dispatcher: Dispatcher,
) -> None:
    """A false alarm costs at most the turns routed meanwhile."""
    home = serve(dispatcher, CHAT, 480).node
    dispatcher.node_failed(home, "no answer within 5 s")
    assert dispatcher.route(CHAT, 500)[1].reason is RouteReason.MOVED

    dispatcher.node_answered(home, 1)

    assert serve(dispatcher, CHAT, 500) == Decision(home, RouteReason.PINNED)


def test_reports_of_a_failure_that_was_mended_since_are_old_news(dispatcher: Dispatcher) -> None:
    """50 turns break off at once; the last of their reports comes after the node is back."""
    home = serve(dispatcher, CHAT).node
    ids = [dispatcher.route(CHAT, 10)[0] for _ in range(50)]
    for route_id in ids[:49]:
        dispatcher.report(route_id, Outcome.NODE_FAILED)
    dispatcher.node_answered(home, 2)

    dispatcher.report(ids[49], Outcome.NODE_FAILED)

    assert (home.state, home.failures) == (NodeState.READY, 1)


def test_a_turn_served_by_a_life_that_ended_makes_no_home_in_the_next(
    dispatcher: Dispatcher,
) -> None:
    route_id, decision = dispatcher.route(CHAT, 100)
    dispatcher.node_failed(decision.node, "killed")
    dispatcher.node_answered(decision.node, 2)

    dispatcher.report(route_id, Outcome.OK, committed_tokens=96)

    after = dispatcher.route(CHAT, 200)[1]
    assert (after.reason, after.moved_from, after.lost_tokens) == (
        RouteReason.MOVED,
        decision.node.name,
        96,
    )


def test_a_draining_node_loses_its_conversations_one_turn_at_a_time(
    dispatcher: Dispatcher,
) -> None:
    home = serve(dispatcher, CHAT, 480).node
    dispatcher.node_draining(home)

    decision = dispatcher.route(CHAT, 500)[1]

    assert decision == Decision(decision.node, RouteReason.MOVED, home.name, 480)
    assert (home.state, home.failures) == (NodeState.DRAINING, 0)
    dispatcher.node_answered(home, 1)
    assert serve(dispatcher, CHAT) == Decision(home, RouteReason.PINNED)


def test_with_every_node_failed_turns_are_refused_and_counted_nowhere(
    dispatcher: Dispatcher,
) -> None:
    for node in dispatcher.list_nodes():
        dispatcher.node_failed(node, "gone")

    with pytest.raises(NoNodeAvailable, match="a is FAILED, b is FAILED, c is FAILED"):
        dispatcher.route(CHAT, 100)

    assert load(dispatcher) == NO_LOAD


def test_a_new_prompt_goes_to_the_idle_node_however_full_its_cache(clock: Clock) -> None:
    """Load is what is in flight, not what is cached or was served."""
    dispatcher = dispatcher_over("ab", clock)
    small, large = dispatcher.list_nodes()
    dispatcher.node_failed(small, "away while the other fills")
    for number in range(50):
        serve(dispatcher, ConversationKey("", f"old-{number}"), 10_000)
    dispatcher.node_answered(small, 2)
    dispatcher.node_draining(large)
    for _ in range(100):
        dispatcher.route(None, 10)
    dispatcher.node_answered(large, 1)

    assert (small.in_flight, large.in_flight) == (100, 0)
    assert large.turns == 50
    assert dispatcher.route(ConversationKey("", "new"), 500)[1].node is large


def test_tenants_keep_their_conversations_apart(dispatcher: Dispatcher) -> None:
    serve(dispatcher, ConversationKey("A", "1"))

    assert serve(dispatcher, ConversationKey("B", "1")).reason is RouteReason.NEW
    assert serve(dispatcher, ConversationKey("A", "10")).reason is RouteReason.NEW
    assert serve(dispatcher, ConversationKey("A", "1")).reason is RouteReason.PINNED


def test_turns_without_a_conversation_leave_no_pin(dispatcher: Dispatcher) -> None:
    assert [serve(dispatcher, None).reason for _ in range(3)] == [RouteReason.NEW] * 3
    assert len(dispatcher.conversations) == 0


def test_sticky_keeps_homes_where_round_robin_loses_them(clock: Clock) -> None:
    """The control arm must fail: else a turn at home would be luck."""

    def turns_at_home(policy: str) -> int:
        dispatcher = dispatcher_over("abcd", clock, policy)
        keys = [ConversationKey("", f"{n}") for n in range(25)]
        decisions = [serve(dispatcher, key) for _ in range(10) for key in keys]
        return sum(decision.reason is RouteReason.PINNED for decision in decisions)

    assert turns_at_home("sticky") == 225
    assert turns_at_home("hash") == 225
    assert turns_at_home("round_robin") == 0
    assert turns_at_home("random") < 150
