"""The nodes of a router, pool by pool, and every step of their lives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping

from prefix_cache.client import NodeState
from prefix_cache.errors import InvalidArgument
from router.claims.text_tree import TextTree
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.conversations import Conversations, Holdings
from router.drains import Drains, Word
from router.nodes import Home, Node
from router.open_routes import OpenRoutes
from router.policies import POLICIES
from router.turn import DEFAULT_POOL

log = logging.getLogger(__name__)


class Pool:
    """Nodes that are kept apart from others: claims and load of one say nothing of another."""

    def __init__(self, config: PoolConfig) -> None:
        self.config = config
        self.policy = POLICIES[config.policy](config)
        self.nodes: dict[str, Node] = {}
        self.sent_texts = TextTree()
        """What was sent to its engines, for those without a cache node."""


class Fleet:
    """Takes nodes in, lets them go, and takes word of how they are: each step is one call.

    ``on_drain`` is told when an operator told this router that a node is to drain or not.
    """

    def __init__(
        self, config: RouterConfig, clock: Callable[[], float], wall_clock: Callable[[], float]
    ) -> None:
        self.pools = {pool.name: Pool(pool) for pool in config.pools}
        self.conversations = Conversations(
            max_pins=config.max_pins, ttl_s=config.pin_ttl_s, clock=clock
        )
        self.on_drain: Callable[[], None] = lambda: None
        self.drains = Drains()
        self._clock = clock
        self._wall_clock = wall_clock
        self._open_routes = OpenRoutes(ttl_s=config.route_ttl_s, clock=clock)
        for pool in config.pools:
            for spec in pool.nodes:
                self.add_node(pool.name, spec)

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
        lost_cache = node.incarnation not in (0, incarnation)
        if lost_cache and node.state in (NodeState.READY, NodeState.DRAINING):
            self.node_failed(node, "its cache is lost")
        if node.state is NodeState.FAILED:
            log.info("node %s is back%s", node.name, ", without its cache" if lost_cache else "")
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
