"""Decisions of the past: found by request, bounded, and nothing of the prompts in them."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

from prefix_cache.errors import UnknownRoute
from router.decisions import MAX_CANDIDATES, Decisions
from router.dispatcher import Dispatcher
from router.status.explanations import in_words
from tests.router.dispatching import dispatcher_over, key, remember_texts, turn


def test_a_decision_is_found_by_its_request_until_newer_ones_push_it_out() -> None:
    dispatcher, decisions = dispatcher_over("ab"), Decisions(max_decisions=3)
    made = [dispatcher.decide(turn(key(number))) for number in range(4)]
    for number, decision in enumerate(made):
        decisions.keep(f"request-{number}", decision)

    assert len(decisions) == 3
    assert [decisions.find(f"request-{number}") for number in (1, 2, 3)] == made[1:]
    with pytest.raises(UnknownRoute, match="no decision of request 'request-0' is known: the last"):
        decisions.find("request-0")


def test_a_request_decided_again_is_found_with_its_last_decision() -> None:
    dispatcher, decisions = dispatcher_over("ab"), Decisions(max_decisions=2)
    first = dispatcher.route(turn()).decision
    second = dispatcher.route(turn(exclude=first.node.name)).decision
    for name, decision in (("mine", first), ("other", first), ("mine", second), ("third", first)):
        decisions.keep(name, decision)

    assert decisions.find("mine") is second
    with pytest.raises(UnknownRoute):
        decisions.find("other")


def test_prompts_are_not_kept_alive() -> None:
    """A thousand prompts of 64 KiB would be 64 MB; their decisions are below 4 MB."""
    dispatcher, decisions = dispatcher_over("abcdefgh"), Decisions(max_decisions=1_000)
    tracemalloc.start()
    try:
        for number in range(1_000):
            route = dispatcher.route(turn(key(number), 16_384, text=bytes(65_536)))
            decisions.keep(f"request-{number}", route.decision)
            dispatcher.not_served(route)
        del route
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(decisions) == 1_000
    assert taken < 4_000_000


def test_of_many_candidates_the_cheapest_are_kept_and_the_chosen_one_first() -> None:
    names = "".join(chr(ord("A") + number) for number in range(26))
    dispatcher, decisions = dispatcher_over(names, policy="least_load"), Decisions(max_decisions=1)
    for number, node in enumerate(dispatcher.nodes()):
        node.in_flight_tokens = 100 * (26 - number)
    for name in "AB":
        dispatcher.node_failed(dispatcher.node(name), "gone")
    decision = dispatcher.decide(turn(exclude="Z"))
    decisions.keep("request", decision)

    kept = decisions.find("request")

    assert MAX_CANDIDATES == 16
    assert kept.node.name == decision.node.name == "Y"
    assert "".join(each.node.name for each in kept.candidates) == "YXWVUTSRQPONMLKJ"
    assert kept.costs[0] == decision.costs[decision.index]
    assert [(node.name, why) for node, why in kept.left_out] == [
        ("A", "is FAILED"),
        ("B", "is FAILED"),
        ("Z", "is excluded"),
    ]


@pytest.fixture
def fleet() -> Dispatcher:
    """26 nodes; the later in the alphabet, the less load."""
    names = "".join(chr(ord("A") + number) for number in range(26))
    dispatcher = dispatcher_over(names, policy="least_load")
    for number, node in enumerate(dispatcher.nodes()):
        node.in_flight_tokens = 100 * (26 - number)
    return dispatcher


def test_of_many_candidates_the_home_that_was_left_and_who_held_most_are_kept(
    fleet: Dispatcher,
) -> None:
    """They say why: without them the home would seem gone, and nothing claimed by anybody."""
    fleet.conversations.pin(key("other"), fleet.node("D").home, 100, written_at=0.0)
    claims = remember_texts(fleet)
    for name in "BC":
        claims[name].texts.append(turn(tokens=64, text=b"text").prompt)
    decisions = Decisions(max_decisions=1)
    decision = fleet.decide(turn(key("other"), text=b"text"))
    decisions.keep("request", decision)

    kept = decisions.find("request")

    assert "".join(each.node.name for each in kept.candidates) == "ZDCYXWVUTSRQPONM"
    assert kept.available_tokens == decision.available_tokens == 64
    assert in_words(kept) == in_words(decision)
    assert in_words(kept) == ("its home D costs more: Z costs least (100.0), next is Y (200.0)")


def test_of_many_that_were_left_out_the_home_is_kept(fleet: Dispatcher) -> None:
    fleet.conversations.pin(key("other"), fleet.node("X").home, 100, written_at=0.0)
    for node in fleet.nodes():
        if node.name != "Z":
            fleet.node_failed(node, "gone")
    decisions = Decisions(max_decisions=1)
    decisions.keep("request", fleet.decide(turn(key("other"))))

    kept = decisions.find("request")

    assert len(kept.left_out) == 16
    assert in_words(kept) == "its home X is FAILED: Z is the only one that can take it"
