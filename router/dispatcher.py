"""The router's state and every step that changes it; synchronous, so each step is one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import InvalidArgument
from router.claims.text_tree import TextTree
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.conversations import Conversations, Holdings, Pin
from router.drains import Drains, Word
from router.ledger import Ledger, LedgerTurn
from router.nodes import Home, Node
from router.open_routes import OpenRoute, OpenRoutes
from router.picker import Decision, pick
from router.policies import POLICIES
from router.turn import DEFAULT_POOL, ConversationKey, Turn

log = logging.getLogger(__name__)


class Pool:
    """Nodes that are kept apart from others: claims and load of one say nothing of another."""

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.policy = POLICIES[config.policy](config)
        self.nodes: dict[str, Node] = {}
        self.sent_texts = TextTree()
        """What was sent to its engines, for those without a cache node."""


class Dispatcher:
    """Routes turns, takes word of how they went, and keeps what is known of each node.

    A conversation is pinned to the life of a node (its incarnation) that served its last turn.
    So a node that failed and comes back as it was still holds its conversations, and one that
    comes back restarted holds none.

    ``on_pin`` is told each pin that is written here, ``on_failure`` each node that failed a turn,
    ``on_drain`` when an operator told this router that a node is to drain or not.
    """

    def __init__(
        self,
        config: RouterConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.pools = {pool.name: Pool(pool) for pool in config.pools}
        self.conversations = Conversations(
            max_pins=config.max_pins, ttl_s=config.pin_ttl_s, clock=clock
        )
        self.ledger = Ledger(max_accounts=config.max_decisions)
        self.on_pin: Callable[[ConversationKey, Pin], None] = lambda key, pin: None
        self.on_failure: Callable[[Node], None] = lambda node: None
        self.on_drain: Callable[[], None] = lambda: None
        self.drains = Drains()
        self._clock = clock
        self._wall_clock = wall_clock
        self._open_routes = OpenRoutes(ttl_s=config.route_ttl_s, clock=clock)
        self.turns_routed = 0
        self.decisions_by_reason = dict.fromkeys(RouteReason, 0)
        self.retries = 0
        """Turns routed again after a node could not serve them."""
        self.unhashable = 0
        """Turns routed of whose prompt no claim could be asked."""
        for pool in config.pools:
            for spec in pool.nodes:
                self.add_node(pool.name, spec)

    # --- turns ------------------------------------------------------------------------------

    def decide(self, turn: Turn) -> Decision:
        """Choose a node as for the next turn routed, without routing it: nothing is counted.

        Raises NoNodeAvailable, and InvalidArgument for an unknown pool.
        """
        self._open_routes.drop_expired()
        pool, turn = self.pool(turn.pool), turn.numbered(self.turns_routed)
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
                decision.reason.name.lower(),
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
            and node.state is NodeState.READY
            and node.lives(home.incarnation)
            and home.node not in turn.exclude
        )

    # --- nodes ------------------------------------------------------------------------------

    @property
    def default_pool(self) -> Pool:
        """The pool of who names none: the one of that name, else the first."""
        return self.pools.get(DEFAULT_POOL) or next(iter(self.pools.values()))

    def pool(self, name: str) -> Pool:
        """Return a pool.  Raises InvalidArgument."""
        if name not in self.pools:
            raise InvalidArgument(
                f"unknown pool {name!r}: expected one of {', '.join(self.pools)}", pool=name
            )
        return self.pools[name]

    def nodes(self) -> Iterator[Node]:
        """Every node, pool by pool, with overdue routes given up."""
        self._open_routes.drop_expired()
        for pool in self.pools.values():
            yield from pool.nodes.values()

    def node(self, name: str) -> Node:
        """Return the node of a name.  Raises InvalidArgument."""
        for node in self.nodes():
            if node.name == name:
                return node
        known = ", ".join(node.name for node in self.nodes())
        raise InvalidArgument(f"unknown node {name!r}: expected one of {known}", node=name)

    def add_node(self, pool: str, spec: NodeSpec) -> Node:
        """Take a node in; it can be chosen once it answered a probe.

        Raises InvalidArgument for a name that is taken.
        """
        if any(node.name == spec.name for node in self.nodes()):
            raise InvalidArgument(f"two nodes are named {spec.name!r}", name=spec.name)
        node = Node(spec.name, spec.address, spec.url, pool)
        node.told_to_drain = node.name in self.drains
        self.pool(pool).nodes[spec.name] = node
        return node

    def remove_node(self, node: Node) -> None:
        """Let a node go: its claims are dropped; turns in flight may still end."""
        log.info("node %s is gone: %s", node.name, self._holdings_in_words(node))
        self.pools[node.pool].nodes.pop(node.name, None)
        node.state = NodeState.GONE
        node.claims.clear()

    def drain(self, name: str, *, drain: bool = True) -> None:
        """Make a node's conversations move away at their next turn, or let it take turns again.

        It holds for whatever node has the name, until it is taken back.  Raises InvalidArgument
        for a name that no node has, unless one that is gone was told to drain.
        """
        if name not in self.drains:
            self.node(name)
        self.drains.say(name, drains=drain, now=self._wall_clock())
        self._follow_drains()
        self.on_drain()

    def learn_drains(self, words: Mapping[str, Word]) -> None:
        """Take over what other routers were told, where it was said later."""
        self.drains.learn(words)
        self._follow_drains()

    def _follow_drains(self) -> None:
        for node in self.nodes():
            was_told, node.told_to_drain = node.told_to_drain, node.name in self.drains
            if node.told_to_drain and node.state is NodeState.READY:
                self.node_draining(node)
            elif was_told and not node.told_to_drain and node.state is NodeState.DRAINING:
                node.state = NodeState.JOINING  # until its next probe

    def node_answered(self, node: Node, incarnation: int) -> None:
        """Take a good probe: the node can be chosen, and lives its life ``incarnation``."""
        if node.state is NodeState.GONE:
            return
        restarted = node.incarnation not in (0, incarnation)
        if restarted and node.state in (NodeState.READY, NodeState.DRAINING):
            self.node_failed(node, "it restarted")
        if node.state is NodeState.FAILED:
            log.info("node %s is back%s", node.name, ", restarted" if restarted else "")
        node.incarnation = incarnation
        node.first_incarnation = node.first_incarnation or incarnation
        if node.told_to_drain:
            self.node_draining(node)
        else:
            node.state = NodeState.READY

    def node_draining(self, node: Node) -> None:
        """Take a probe that says not to send turns: the node's conversations move away."""
        if node.state is NodeState.GONE:
            return
        if node.state is not NodeState.DRAINING:
            log.info("node %s is draining: %s", node.name, self._holdings_in_words(node))
        node.state = NodeState.DRAINING

    def node_failed(self, node: Node, why: str) -> None:
        """Leave the node alone until a probe succeeds.  Its load stays until reported."""
        if node.state in (NodeState.FAILED, NodeState.GONE):
            return
        log.warning("node %s failed (%s): %s", node.name, why, self._holdings_in_words(node))
        node.state = NodeState.FAILED
        node.failures += 1
        node.lost_tokens += self.holdings(node).committed_tokens

    def node_lost_its_cache(self, node: Node) -> None:
        """Take word that the node's engine has ended: what is believed of its cache is void."""
        node.claims.clear()
        self._lost(node)

    def holdings(self, node: Node) -> Holdings:
        """Return what is pinned to the node's present life."""
        held = self.conversations.holdings(node.home)
        if node.incarnation and node.lives(0):
            before = self.conversations.holdings(Home(node.name, 0))
            held.conversations += before.conversations
            held.committed_tokens += before.committed_tokens
        return held

    def _lost(self, node: Node) -> None:
        node.losses += 1
        node.lost_at = self._wall_clock()

    def _holdings_in_words(self, node: Node) -> str:
        held = self.holdings(node)
        return (
            f"{held.conversations} conversations with {held.committed_tokens} committed tokens "
            f"are pinned there, {node.in_flight} turns are in flight"
        )


def _lives_on(route: OpenRoute) -> bool:
    """Whether the life of the node that took the turn goes on."""
    node = route.node
    return node.state is not NodeState.GONE and node.lives(route.home.incarnation)
