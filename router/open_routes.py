"""Turns that were routed and wait for their report: the load of the nodes."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache.errors import UnknownRoute
from router.nodes import Home, Node
from router.turn import Turn


@dataclass(frozen=True, slots=True)
class OpenRoute:
    """A routed turn, and what its node was when it was chosen."""

    turn: Turn
    node: Node
    home: Home
    failures: int
    deadline: float


class OpenRoutes:
    """Routed turns by number.

    Opening counts a turn into the load of its node, closing takes it out.  A route not closed
    within ``ttl_s`` seconds of ``clock`` is given up, so that load always comes back to zero.
    """

    def __init__(self, *, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._routes: OrderedDict[int, OpenRoute] = OrderedDict()  # earliest deadline first

    def open(self, turn: Turn, node: Node) -> int:
        """Count ``turn`` at ``node`` and return the number of the route.

        Numbers are drawn at random, so that one from an earlier life of the router names nothing.
        """
        route_id = secrets.randbits(63) + 1
        deadline = self._clock() + self._ttl_s
        self._routes[route_id] = OpenRoute(turn, node, node.home, node.failures, deadline)
        node.in_flight += 1
        node.in_flight_tokens += turn.prompt_tokens
        return route_id

    def find(self, route_id: int) -> OpenRoute:
        """Return a route that waits for its report.  Raises UnknownRoute."""
        self.drop_expired()
        if route_id not in self._routes:
            raise UnknownRoute(
                f"route {route_id} is not open: it was never given out, was reported before, "
                f"or waited longer than {self._ttl_s:g} s for its report",
                route_id=route_id,
            )
        return self._routes[route_id]

    def close(self, route_id: int) -> OpenRoute:
        """Free the load of a route and return it.  Raises UnknownRoute."""
        route = self.find(route_id)
        self._close(route_id)
        return route

    def drop_expired(self) -> None:
        """Free the load of routes whose report is overdue."""
        now = self._clock()
        while self._routes:
            route_id, route = next(iter(self._routes.items()))
            if route.deadline > now:
                break
            self._close(route_id)

    def _close(self, route_id: int) -> None:
        route = self._routes.pop(route_id)
        route.node.in_flight -= 1
        route.node.in_flight_tokens -= route.turn.prompt_tokens
