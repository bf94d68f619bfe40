"""Open routes are the load of the nodes, and load always comes back to zero."""

from __future__ import annotations

import pytest

from prefix_cache.client import RouteReason
from prefix_cache.errors import UnknownRoute
from router.nodes import Home, Node
from router.open_routes import OpenRoute, OpenRoutes
from router.picker import Decision
from router.policies import Candidate
from tests.router.clock import Clock
from tests.router.dispatching import CHAT, all_load, turn


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def routes(clock: Clock) -> OpenRoutes:
    return OpenRoutes(ttl_s=60.0, clock=clock)


@pytest.fixture
def node() -> Node:
    return Node("a", "127.0.0.1:1")


def open_at(routes: OpenRoutes, node: Node, tokens: int, cached: int = 0) -> OpenRoute:
    decision = Decision(
        *(tokens, True, 0, RouteReason.NEW),
        *([Candidate(node, cached, is_home=False)], [(0.0,)], ("nothing",), []),
    )
    return routes.open(turn(tokens=tokens), decision)


def test_a_route_is_load_while_it_is_open(routes: OpenRoutes, node: Node) -> None:
    first = open_at(routes, node, 300, cached=100)
    second = open_at(routes, node, 0)
    assert all_load(node) == (2, 300, 200, 0)

    assert routes.close(first)
    assert all_load(node) == (1, 0, 0, 0)
    assert routes.close(second)
    assert all_load(node) == (0, 0, 0, 0)


def test_a_route_closes_once(routes: OpenRoutes, node: Node) -> None:
    route = open_at(routes, node, 300)
    assert (routes.close(route), routes.close(route)) == (True, False)
    routes.begin(route)
    assert all_load(node) == (0, 0, 0, 0)


def test_a_route_is_found_by_the_number_it_was_given(routes: OpenRoutes, node: Node) -> None:
    route = open_at(routes, node, 300)
    number = routes.number(route)
    assert routes.find(number) is route
    routes.close(route)

    with pytest.raises(UnknownRoute, match=f"route {number} is not open") as caught:
        routes.find(number)

    assert caught.value.details == {"route_id": number}


def test_a_route_whose_number_is_never_reported_is_given_up(
    routes: OpenRoutes, node: Node, clock: Clock
) -> None:
    routes.number(open_at(routes, node, 300))
    clock.advance(30)
    routes.number(open_at(routes, node, 50))
    clock.advance(30)

    routes.drop_expired()

    assert all_load(node) == (1, 50, 50, 0)


def test_a_report_that_comes_too_late_is_of_no_route(
    routes: OpenRoutes, node: Node, clock: Clock
) -> None:
    number = routes.number(open_at(routes, node, 300))
    clock.advance(60)

    with pytest.raises(UnknownRoute, match="waited longer than 60 s"):
        routes.find(number)

    assert all_load(node) == (0, 0, 0, 0)


def test_a_route_remembers_the_life_of_its_node(routes: OpenRoutes, node: Node) -> None:
    node.incarnation, node.failures = 7, 2
    route = open_at(routes, node, 300)
    node.incarnation, node.failures = 8, 3

    assert (route.home, route.failures) == (Home("a", 7), 2)


def test_the_latest_open_route_of_a_conversation_is_known(routes: OpenRoutes, node: Node) -> None:
    assert routes.latest(CHAT) is None
    first, second, third = (open_at(routes, node, 1) for _ in range(3))
    assert routes.latest(CHAT) is third
    routes.close(third)
    assert routes.latest(CHAT) is second
    routes.close(first)
    assert routes.latest(CHAT) is second
    routes.close(second)
    assert routes.latest(CHAT) is None


def test_numbers_of_routes_are_never_zero_and_differ(routes: OpenRoutes, node: Node) -> None:
    numbers = {routes.number(open_at(routes, node, 1)) for _ in range(100)}

    assert len(numbers) == 100
    assert all(0 < number <= 2**63 for number in numbers)
