"""Routes turns over the nodes, and takes word of how they went; synchronous: each step is one."""

from __future__ import annotations

import time
from collections.abc import Callable

from prefix_cache.client import NodeState, RouteReason
from router.config import RouterConfig
from router.conversations import Pin
from router.fleet import Fleet
from router.ledger import Ledger, LedgerTurn
from router.nodes import Home, Node
from router.open_routes import OpenRoute
from router.picker import Decision, pick
from router.turn import ConversationKey, Turn

# A member of an enum, or its name, is looked up slowly, and these are needed for every turn.
_GONE, _READY = NodeState.GONE, NodeState.READY
_IN_WORDS = {reason: reason.name.lower() for reason in RouteReason}


class Dispatcher(Fleet):
    """A fleet that turns are routed over, and what is known of these.

    A conversation is pinned to the life of a node (its incarnation) that served its last turn.
    So a node that failed and comes back as it was still holds its conversations, and one that
    lost its cache holds none.

    ``on_pin`` is told each pin that is written here, ``on_failure`` each node that failed a turn.
    """

    def __init__(
        self,
        config: RouterConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(config, clock, wall_clock)
        self.ledger = Ledger(max_accounts=config.max_decisions)
        self.on_pin: Callable[[ConversationKey, Pin], None] = lambda key, pin: None
        self.on_failure: Callable[[Node], None] = lambda node: None
        self.turns_routed = 0
        self.decisions_by_reason = dict.fromkeys(RouteReason, 0)
        self.retries = 0
        """Turns routed again after a node could not serve them."""
        self.unhashable = 0
        """Turns routed of whose prompt no claim could be asked."""

    def decide(self, turn: Turn) -> Decision:
        """Choose a node as for the next turn routed, without routing it: nothing is counted.

        The turn gets its number.  Raises NoNodeAvailable, and InvalidArgument for an unknown pool.
        """
        self._open_routes.drop_expired()
        pool = self.pool(turn.pool)
        turn.number = self.turns_routed
        return pick(pool.nodes.values(), turn, self._pin(turn), pool.policy, self._clock())

    def route(self, turn: Turn) -> OpenRoute:
        """Choose a node for a turn and count its load there, in one step.

        The conversation is pinned only when the turn is accepted.  Raises NoNodeAvailable.
        """
        decision = self.decide(turn)
        self.turns_routed += 1
        self.decisions_by_reason[decision.reason] += 1
        self.retries += bool(turn.exclude)
        self.unhashable += not decision.is_hashable
        return self._open_routes.open(turn, decision)

    def number(self, route: OpenRoute) -> int:
        """Give a route a number, for one who reports it from outside or is never heard of again."""
        return self._open_routes.number(route)

    def find_route(self, route_id: int) -> OpenRoute:
        """Return the open route of a number.  Raises UnknownRoute."""
        return self._open_routes.find(route_id)

    def accepted(self, route: OpenRoute, committed_tokens: int = 0) -> None:
        """Take word that the node began to answer: its prefill is done, the conversation pinned."""
        self._open_routes.begin(route)
        if route.decision.is_hashable and _lives_on(route):
            route.node.claims.accepted(route.turn.prompt)
        conversation = route.turn.conversation
        if conversation is not None:
            self.pin(conversation, route, committed_tokens)

    def pin(
        self, conversation: ConversationKey, route: OpenRoute, committed_tokens: int = 0
    ) -> None:
        """Make the node of a route the home of a conversation, which may go by several names."""
        prompt = route.turn.prompt
        pin = self.conversations.pin(
            conversation,
            route.home,
            committed_tokens or prompt.num_tokens,
            written_at=self._wall_clock(),
            text_bytes=0 if committed_tokens else len(prompt.text),
        )
        self.on_pin(conversation, pin)

    def served(
        self, route: OpenRoute, *, cached_tokens: int | None, prompt_tokens: int | None = None
    ) -> None:
        """Take word that the turn is over, and what of its prompt was cached (None: unsaid).

        ``prompt_tokens`` is the engine's own count, where it says one.  What was claimed is
        taken in proportion where the router's was another: its estimates are no loss.
        """
        if not self._open_routes.close(route):
            return
        node, turn, decision = route.node, route.turn, route.decision
        promised, available = decision.promised_tokens, decision.available_tokens
        counted = decision.prompt_tokens
        if prompt_tokens is None:
            prompt_tokens = counted
        elif available:
            promised = promised * prompt_tokens // counted
            available = available * prompt_tokens // counted
        node.turns += 1
        node.prompt_tokens += prompt_tokens
        if cached_tokens is not None:
            cached_tokens = min(cached_tokens, prompt_tokens)
            node.told_tokens += prompt_tokens
            node.cached_tokens += cached_tokens
        if decision.is_hashable and _lives_on(route):
            is_claimed = route.losses == node.losses and not decision.rests_on_pin
            if node.claims.served(turn.prompt, promised if is_claimed else 0, cached_tokens):
                self._lost(node)
        self.ledger.enter(
            turn.conversation,
            LedgerTurn(
                node.name,
                _IN_WORDS[decision.reason],
                prompt_tokens,
                available,
                promised,
                cached_tokens,
                decision.is_hashable,
            ),
        )

    def not_served(self, route: OpenRoute) -> None:
        """Take word that the turn ended for a reason that is not the node's."""
        self._open_routes.close(route)

    def failed(self, route: OpenRoute, why: str) -> None:
        """Take word that the node could not be reached, or broke off."""
        was_open = self._open_routes.close(route)
        # Otherwise this is about a failure known already, maybe mended since.
        if was_open and route.node.failures == route.failures:
            self.node_failed(route.node, why)
            self.on_failure(route.node)

    def learn_pin(self, conversation: ConversationKey, pin: Pin) -> None:
        """Take over the pin that routers share, which may be one that was written here.

        One that is older than the one known changes nothing.
        """
        known = self.conversations.get(conversation)
        if known is not None and pin.written_at < known.written_at:
            return
        is_news = known is None or known[:2] != pin[:2]
        self.conversations.pin(
            conversation,
            pin.home,
            pin.committed_tokens,
            written_at=pin.written_at,
            text_bytes=pin.text_bytes,
            is_learned=is_news or (known is not None and known.is_learned),
        )

    def _pin(self, turn: Turn) -> Pin | None:
        """Where the conversation is at home, or about to be."""
        if turn.conversation is None:
            return None
        pin = self.conversations.get(turn.conversation)
        if pin is not None and self._can_take(turn, pin.home):
            return pin
        route = self._open_routes.latest(turn.conversation)
        if route is not None and self._can_take(turn, route.home):
            # Of turns that come together without a home the others follow the first, and none
            # waits for it.
            return Pin(route.home, 0, self._clock(), self._wall_clock())
        return pin

    def _can_take(self, turn: Turn, home: Home) -> bool:
        node = self.pools[turn.pool].nodes.get(home.node)
        return (
            node is not None
            and node.state is _READY
            and node.lives(home.incarnation)
            and home.node not in turn.exclude
        )


def _lives_on(route: OpenRoute) -> bool:
    """Whether the life of the node that took the turn goes on."""
    node = route.node
    return node.state is not _GONE and node.lives(route.home.incarnation)
