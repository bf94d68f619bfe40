"""Turns that were routed and are not over: the load of the nodes."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable

from prefix_cache.errors import UnknownRoute
from router.picker import Decision
from router.turn import ConversationKey, Turn


class OpenRoute:
    """A routed turn, what its node was when it was chosen, and how far it is."""

    __slots__ = (
        "deadline",
        "decision",
        "failures",
        "has_begun",
        "home",
        "is_open",
        "losses",
        "node",
        "route_id",
        "turn",
        "uncached_tokens",
    )

    def __init__(self, turn: Turn, decision: Decision) -> None:
        node = decision.node
        self.turn = turn
        self.decision = decision
        self.node = node
        self.home = node.home
        self.failures = node.failures
        self.losses = node.losses
        self.uncached_tokens = decision.prompt_tokens - decision.promised_tokens
        """Of the prompt, those that the node is not claimed to hold."""
        self.has_begun = False
        """Whether the node has begun to answer: its prefill is done."""
        self.is_open = True
        self.route_id = 0
        """Its number outside this process; 0: it has none."""
        self.deadline = 0.0
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
        route = OpenRoute(turn, decision)
        node, uncached = route.node, route.uncached_tokens
        if turn.conversation is not None:
            self._by_conversation.setdefault(turn.conversation, {})[route] = None
        node.in_flight += 1
        node.in_flight_tokens += decision.prompt_tokens
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
