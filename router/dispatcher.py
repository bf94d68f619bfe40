"""The router's state and every step that changes it; synchronous, so each step is one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable

from prefix_cache.client import NodeState, Outcome
from prefix_cache.errors import InvalidArgument
from router.config import RouterConfig
from router.conversations import Conversations
from router.nodes import Node
from router.open_routes import OpenRoutes
from router.picker import Decision, pick
from router.policies import POLICIES
from router.turn import ConversationKey, Turn

log = logging.getLogger(__name__)


class Dispatcher:
    """Routes turns, takes their reports, and keeps what is known of each node.

    A conversation is pinned to the life of a node (its incarnation) that served its last turn.
    So a node that failed and comes back as it was still holds its conversations, and one that
    comes back restarted holds none.
    """

    def __init__(
        self, config: RouterConfig, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.nodes = {name: Node(name, address) for name, address in config.nodes.items()}
        self.conversations = Conversations(
            max_pins=config.max_pins, ttl_s=config.pin_ttl_s, clock=clock
        )
        self.policy_name = config.policy
        self._policy = POLICIES[config.policy]()
        self._open_routes = OpenRoutes(ttl_s=config.route_ttl_s, clock=clock)
        self._turns_routed = 0

    def route(
        self,
        conversation: ConversationKey | None,
        prompt_tokens: int,
        exclude: Iterable[str] = (),
    ) -> tuple[int, Decision]:
        """Choose a node for a turn and count its load there.

        Returns the number to report it by, and the choice.  The conversation is pinned only
        when the turn is reported as served.  Raises NoNodeAvailable.
        """
        self._open_routes.drop_expired()
        turn = Turn(conversation, prompt_tokens, frozenset(exclude), self._turns_routed)
        pin = None if conversation is None else self.conversations.get(conversation)
        decision = pick(self.nodes.values(), turn, pin, self._policy)
        self._turns_routed += 1
        return self._open_routes.open(turn, decision.node), decision

    def report(
        self, route_id: int, outcome: Outcome, cached_tokens: int = 0, committed_tokens: int = 0
    ) -> None:
        """Free the load of a routed turn and learn from how it went.

        Raises UnknownRoute, and InvalidArgument for more cached tokens than the prompt has.
        """
        route = self._open_routes.find(route_id)
        node, turn = route.node, route.turn
        if cached_tokens > turn.prompt_tokens:
            raise InvalidArgument(
                f"{cached_tokens} cached tokens were reported, the prompt of the turn has "
                f"{turn.prompt_tokens}",
                cached_tokens=cached_tokens,
                prompt_tokens=turn.prompt_tokens,
            )
        self._open_routes.close(route_id)
        if outcome is Outcome.OK:
            node.turns += 1
            node.prompt_tokens += turn.prompt_tokens
            node.cached_tokens += cached_tokens
            if turn.conversation is not None:
                self.conversations.pin(turn.conversation, route.home, committed_tokens)
        elif outcome is Outcome.NODE_FAILED and node.failures == route.failures:
            # Otherwise the report is about a failure known already, maybe mended since.
            self.node_failed(node, "a turn was reported as failed")

    def list_nodes(self) -> list[Node]:
        """Return the nodes in the order of the configuration, with overdue routes given up."""
        self._open_routes.drop_expired()
        return list(self.nodes.values())

    def node_answered(self, node: Node, incarnation: int) -> None:
        """Take a good probe: the node can be chosen, and lives its life ``incarnation``."""
        restarted = incarnation != node.incarnation
        if restarted and node.state in (NodeState.READY, NodeState.DRAINING):
            self.node_failed(node, "it restarted")
        if node.state is NodeState.FAILED:
            log.info("node %s is back, %s its cache", node.name, "without" if restarted else "with")
        node.incarnation = incarnation
        node.state = NodeState.READY

    def node_draining(self, node: Node) -> None:
        """Take a probe that says not to send turns: the node's conversations move away."""
        if node.state is not NodeState.DRAINING:
            log.info("node %s is draining: %s", node.name, self._holdings_in_words(node))
        node.state = NodeState.DRAINING

    def node_failed(self, node: Node, why: str) -> None:
        """Leave the node alone until a probe succeeds.  Its load stays until reported."""
        if node.state is NodeState.FAILED:
            return
        log.warning("node %s failed (%s): %s", node.name, why, self._holdings_in_words(node))
        node.state = NodeState.FAILED
        node.failures += 1
        node.lost_tokens += self.conversations.holdings(node.home).committed_tokens

    def _holdings_in_words(self, node: Node) -> str:
        held = self.conversations.holdings(node.home)
        return (
            f"{held.conversations} conversations with {held.committed_tokens} committed tokens "
            f"are pinned there, {node.in_flight} turns are in flight"
        )
