"""Load: counted with the choice, gone on every path, touched by nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from prefix_cache.errors import UnknownRoute
from router.dispatcher import Dispatcher
from router.open_routes import OpenRoute
from tests.router.clock import Clock
from tests.router.dispatching import (
    all_load,
    dispatcher_over,
    key,
    load,
    remember_texts,
    serve,
    turn,
)

NO_LOAD = {"a": (0, 0), "b": (0, 0), "c": (0, 0)}

End = Callable[[Dispatcher, OpenRoute], object]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def dispatcher(clock: Clock) -> Dispatcher:
    return dispatcher_over("abc", clock)


def served(dispatcher: Dispatcher, route: OpenRoute) -> None:
    dispatcher.served(route, cached_tokens=None)


def not_served(dispatcher: Dispatcher, route: OpenRoute) -> None:
    dispatcher.not_served(route)


def failed(dispatcher: Dispatcher, route: OpenRoute) -> None:
    dispatcher.failed(route, "broke off")


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "waiting"])
@pytest.mark.parametrize("end", [served, not_served, failed])
def test_load_rises_with_the_route_and_is_gone_on_every_path(
    dispatcher: Dispatcher, end: End, begun: bool
) -> None:
    """F095."""
    routes = [dispatcher.route(turn(None, 10)) for _ in range(90)]
    assert load(dispatcher) == {"a": (30, 300), "b": (30, 300), "c": (30, 300)}
    if begun:
        for route in routes:
            dispatcher.accepted(route)

    for route in routes:
        end(dispatcher, route)

    assert [all_load(node) for node in dispatcher.nodes()] == [(0, 0, 0, 0)] * 3


def test_a_turn_waits_for_its_prefill_and_then_decodes(dispatcher: Dispatcher) -> None:
    claims = remember_texts(dispatcher)
    for each in claims.values():
        each.texts.append(turn(tokens=600, text=b"held").prompt)
    route = dispatcher.route(turn(tokens=1_000, text=b"held and new"))
    assert all_load(route.node) == (1, 1_000, 400, 0)

    dispatcher.accepted(route)
    dispatcher.accepted(route)
    assert all_load(route.node) == (1, 1_000, 0, 1)

    dispatcher.served(route, cached_tokens=600)
    assert all_load(route.node) == (0, 0, 0, 0)


def test_what_claims_become_while_a_turn_runs_does_not_unbalance_the_count(
    dispatcher: Dispatcher,
) -> None:
    claims = remember_texts(dispatcher)
    route = dispatcher.route(turn(tokens=1_000, text=b"text"))
    claims[route.node.name].texts.append(turn(tokens=900, text=b"text").prompt)

    dispatcher.not_served(route)

    assert all_load(route.node) == (0, 0, 0, 0)


def test_probes_never_touch_load(dispatcher: Dispatcher) -> None:
    """F096: 50 streams and one stay 51, whatever a probe says in between."""
    routes = [dispatcher.route(turn(None, 10)) for _ in range(51)]
    before = load(dispatcher)
    for node in list(dispatcher.nodes()):
        dispatcher.node_answered(node, 1)
        dispatcher.node_draining(node)
        dispatcher.node_failed(node, "no answer")
        dispatcher.node_answered(node, 2)

    assert load(dispatcher) == before == {"a": (17, 170), "b": (17, 170), "c": (17, 170)}
    for route in routes:
        served(dispatcher, route)
    assert load(dispatcher) == NO_LOAD


def test_a_full_cache_is_no_load(dispatcher: Dispatcher) -> None:
    """F098."""
    remember_texts(dispatcher)
    for number in range(30):
        route = dispatcher.route(turn(key(number), 10_000, text=f"text {number}".encode()))
        dispatcher.accepted(route)
        served(dispatcher, route)

    assert sum(node.prompt_tokens for node in dispatcher.nodes()) == 300_000
    assert [all_load(node) for node in dispatcher.nodes()] == [(0, 0, 0, 0)] * 3


def test_a_new_prompt_goes_to_the_idle_node_however_full_its_cache() -> None:
    """F104: not to the smallest cache."""
    dispatcher = dispatcher_over("ab")
    small, large = dispatcher.nodes()
    dispatcher.node_failed(small, "away while the other fills")
    for number in range(50):
        serve(dispatcher, key(f"old-{number}"), 1_000)
    dispatcher.node_answered(small, 2)
    dispatcher.node_draining(large)
    for _ in range(100):
        dispatcher.route(turn(None, 1_000))
    dispatcher.node_answered(large, 1)

    assert (small.in_flight, large.in_flight) == (100, 0)
    assert dispatcher.route(turn(key("new"), 500)).node is large


@pytest.mark.parametrize("with_conversation", [True, False], ids=["conversations", "single turns"])
@pytest.mark.parametrize("tokens", [0, 1_000])
def test_a_hundred_turns_at_once_do_not_herd(with_conversation: bool, tokens: int) -> None:
    """F105: choice and count are one step; of 8 nodes none gets above twice its share."""
    dispatcher = dispatcher_over("abcdefgh")
    routes = [
        dispatcher.route(turn(key(number) if with_conversation else None, tokens))
        for number in range(100)
    ]

    counts = Counter(route.node.name for route in routes)
    assert max(counts.values()) <= 25
    assert {node.name: node.in_flight for node in dispatcher.nodes()} == counts


def test_load_of_turns_never_reported_comes_back_too(dispatcher: Dispatcher, clock: Clock) -> None:
    overdue = [dispatcher.number(dispatcher.route(turn(None, 10))) for _ in range(9)]
    clock.advance(60)

    assert load(dispatcher) == NO_LOAD
    with pytest.raises(UnknownRoute):
        dispatcher.find_route(overdue[0])


def test_a_stream_held_by_this_process_is_load_however_long_it_takes(
    dispatcher: Dispatcher, clock: Clock
) -> None:
    route = dispatcher.route(turn(None, 10))
    clock.advance(86_400)

    assert sum(node.in_flight for node in dispatcher.nodes()) == 1
    served(dispatcher, route)
    assert load(dispatcher) == NO_LOAD


def test_overdue_turns_do_not_weigh_on_the_next_choice(clock: Clock) -> None:
    dispatcher = dispatcher_over("ab", clock, "least_load")
    first = dispatcher.route(turn(None, 1_000))
    dispatcher.number(first)
    clock.advance(30)
    second = dispatcher.route(turn(None, 10))
    assert second.node is not first.node
    clock.advance(30)

    assert dispatcher.route(turn(None, 10)).node is first.node
