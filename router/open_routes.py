"""Turns that were routed and are not over: the load of the nodes."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache.errors import UnknownRoute
from router.nodes import Home, Node
from router.picker import Decision
from router.turn import ConversationKey, Turn


@dataclass(slots=True, eq=False)
class OpenRoute:
    """A routed turn, what its node was when it was chosen, and how far it is."""

    turn: Turn
    decision: Decision
    node: Node
    home: Home
    failures: int
    losses: int
    """These two are those of the node when it was chosen."""
    uncached_tokens: int
    """Of the prompt, those that the node is not claimed to hold."""
    has_begun: bool = False
    """Whether the node has begun to answer: its prefill is done."""
    is_open: bool = True
    route_id: int = 0
    """Its number outside this process; 0: it has none."""
    deadline: float = 0.0
    """When a route with a number is given up."""


class OpenRoutes:
    """Counts routed turns into the load of their nodes, and out of it.

    Who holds an ``OpenRoute`` closes it.  Who only has its number may never come back: such a
    route is given up ``ttl_s`` seconds of ``clock`` after it got its number, so that load always
    comes back to zero.
    """

    def __init__(self, *, ttl_s: float, clock: Callable[[], float]) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._numbered: OrderedDict[int, OpenRoute] = OrderedDict()  # earliest deadline first
        self._by_conversation: dict[ConversationKey, dict[OpenRoute, None]] = {}

    def open(self, turn: Turn, decision: Decision) -> OpenRoute:
        """Count a decided turn at its node."""
        node, prompt_tokens = decision.node, decision.prompt_tokens
        uncached = prompt_tokens - decision.promised_tokens
        route = OpenRoute(turn, decision, node, node.home, node.failures, node.losses, uncached)
        if turn.conversation is not None:
            self._by_conversation.setdefault(turn.conversation, {})[route] = None
        node.in_flight += 1
        node.in_flight_tokens += prompt_tokens
        node.queued_prefill += uncached
        now = self._clock()
        node.prefill_progress.waits(route, uncached, now)
        node.recent_prefill.add(uncached, now)
        return route

    def latest(self, conversation: ConversationKey) -> OpenRoute | None:
        """The open route of the conversation that was opened last."""
        routes = self._by_conversation.get(conversation)
        return next(reversed(routes)) if routes else None

    def number(self, route: OpenRoute) -> int:
        """Give a route a number under which it can be found, and a deadline.

        Numbers are drawn at random, so that one from an earlier life of the router names nothing.
        """
        route.route_id = secrets.randbits(63) + 1
        route.deadline = self._clock() + self._ttl_s
        self._numbered[route.route_id] = route
        return route.route_id

    def find(self, route_id: int) -> OpenRoute:
        """Return the open route of a number.  Raises UnknownRoute."""
        self.drop_expired()
        if route_id not in self._numbered:
            raise UnknownRoute(
                f"route {route_id} is not open: it was never given out, was reported before, "
                f"or waited longer than {self._ttl_s:g} s for its report",
                route_id=route_id,
            )
        return self._numbered[route_id]

    def begin(self, route: OpenRoute) -> None:
        """Take note that the node has begun to answer."""
        if route.is_open and not route.has_begun:
            route.has_begun = True
            route.node.prefill_progress.begins(route, self._clock())
            route.node.queued_prefill -= route.uncached_tokens
            route.node.decoding += 1

    def close(self, route: OpenRoute) -> bool:
        """Free the load of a route; return whether it was still open."""
        if not route.is_open:
            return False
        route.is_open = False
        self._numbered.pop(route.route_id, None)
        node, conversation = route.node, route.turn.conversation
        if conversation is not None:
            routes = self._by_conversation[conversation]
            del routes[route]
            if not routes:
                del self._by_conversation[conversation]
        node.in_flight -= 1
        node.in_flight_tokens -= route.decision.prompt_tokens
        if route.has_begun:
            node.decoding -= 1
        else:
            node.prefill_progress.leaves(route)
            node.queued_prefill -= route.uncached_tokens
        return True

    def drop_expired(self) -> None:
        """Free the load of routes whose report is overdue."""
        while self._numbered:
            route = next(iter(self._numbered.values()))
            if route.deadline > self._clock():
                break
            self.close(route)
