"""Open routes are the load of the nodes, and load always comes back to zero."""

from __future__ import annotations

import pytest

from prefix_cache.errors import UnknownRoute
from router.nodes import Home, Node
from router.open_routes import OpenRoutes
from router.turn import Turn
from tests.router.clock import Clock


def turn(prompt_tokens: int) -> Turn:
    return Turn(None, prompt_tokens, frozenset(), 0)


def load(node: Node) -> tuple[int, int]:
    return node.in_flight, node.in_flight_tokens


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def routes(clock: Clock) -> OpenRoutes:
    return OpenRoutes(ttl_s=60.0, clock=clock)


def test_a_route_is_load_while_it_is_open(routes: OpenRoutes) -> None:
    node = Node("a", "127.0.0.1:1")
    first = routes.open(turn(300), node)
    second = routes.open(turn(0), node)
    assert load(node) == (2, 300)

    assert routes.close(first).turn == turn(300)
    assert load(node) == (1, 0)
    routes.close(second)
    assert load(node) == (0, 0)


def test_a_route_can_be_closed_once(routes: OpenRoutes) -> None:
    node = Node("a", "127.0.0.1:1")
    route_id = routes.open(turn(300), node)
    routes.close(route_id)

    with pytest.raises(UnknownRoute, match=f"route {route_id} is not open") as caught:
        routes.close(route_id)

    assert caught.value.details == {"route_id": route_id}
    assert load(node) == (0, 0)


def test_a_route_never_reported_is_given_up(routes: OpenRoutes, clock: Clock) -> None:
    node = Node("a", "127.0.0.1:1")
    routes.open(turn(300), node)
    clock.advance(30)
    routes.open(turn(50), node)
    clock.advance(30)

    routes.drop_expired()

    assert load(node) == (1, 50)


def test_a_report_that_comes_too_late_is_of_no_route(routes: OpenRoutes, clock: Clock) -> None:
    node = Node("a", "127.0.0.1:1")
    route_id = routes.open(turn(300), node)
    clock.advance(60)

    with pytest.raises(UnknownRoute, match="waited longer than 60 s"):
        routes.close(route_id)

    assert load(node) == (0, 0)


def test_a_route_remembers_the_life_of_its_node(routes: OpenRoutes) -> None:
    node = Node("a", "127.0.0.1:1", incarnation=7, failures=2)
    route_id = routes.open(turn(300), node)
    node.incarnation, node.failures = 8, 3

    route = routes.close(route_id)

    assert (route.home, route.failures) == (Home("a", 7), 2)


def test_numbers_of_routes_are_never_zero_and_differ(routes: OpenRoutes) -> None:
    node = Node("a", "127.0.0.1:1")
    numbers = {routes.open(turn(1), node) for _ in range(100)}

    assert len(numbers) == 100
    assert all(0 < number <= 2**63 for number in numbers)
