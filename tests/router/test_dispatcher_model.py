"""Whatever happens, in whatever order: the dispatcher against a naive model of its promises."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import NoNodeAvailable
from router.config import NodeSpec
from router.conversations import Pin
from router.nodes import Home, Node
from router.open_routes import OpenRoute
from router.policies import RandomChoice
from router.turn import ConversationKey, Turn
from tests.router.clock import Clock
from tests.router.dispatching import (
    RememberedTexts,
    all_load,
    dispatcher_over,
    key,
    remember_texts,
    turn,
)

MAX_PINS = 4
PIN_TTL_S, ROUTE_TTL_S = 100.0, 60.0

conversations = st.sampled_from([None, *(key(number) for number in range(6))])
texts = st.sampled_from([b"", b"one", b"one two", b"three"])
tokens = st.integers(0, 1_000)
positions = st.integers(0, 10_000)


@dataclass(eq=False)
class Opened:
    """What the model knows of an open route."""

    route: OpenRoute
    deadline: float | None = None
    begun: bool = False


class DispatcherMachine(RuleBasedStateMachine):
    @initialize(
        policy=st.sampled_from(["sticky", "prefix", "least_load", "hash", "round_robin", "random"])
    )
    def start(self, policy: str) -> None:
        self.clock = Clock()
        self.dispatcher = dispatcher_over(
            "abc",
            self.clock,
            policy,
            max_pins=MAX_PINS,
            pin_ttl_s=PIN_TTL_S,
            route_ttl_s=ROUTE_TTL_S,
        )
        if policy == "random":
            # What the same steps lead to must be the same: Hypothesis takes them again.
            self.dispatcher.default_pool.policy = RandomChoice(Random(0))
        remember_texts(self.dispatcher)
        self.nodes: list[Node] = list(self.dispatcher.nodes())  # those gone included
        self.open: list[Opened] = []
        self.pins: dict[ConversationKey, tuple[Home, float]] = {}  # unused for longest first
        self.served = 0

    # --- turns ------------------------------------------------------------------------------

    @rule(
        conversation=conversations,
        tokens=tokens,
        text=texts,
        exclude=st.sampled_from(["", "a", "ab", "abcdef"]),
        reported=st.booleans(),
    )
    def route(
        self,
        conversation: ConversationKey | None,
        tokens: int,
        text: bytes,
        exclude: str,
        reported: bool,
    ) -> None:
        asked = turn(conversation, tokens, exclude=exclude, text=text)
        able = [
            node
            for node in self.nodes
            if node.state is NodeState.READY and node.name not in exclude
        ]
        home = self._home_of(asked)
        if not able:
            with pytest.raises(NoNodeAvailable):
                self.dispatcher.route(asked)
            return
        route = self.dispatcher.route(asked)

        assert route.node in able
        if home is None:
            assert route.decision.reason is RouteReason.NEW
        else:
            at_home = _lives(route.node, home)
            assert route.decision.reason is (RouteReason.PINNED if at_home else RouteReason.MOVED)
        opened = Opened(route)
        if reported:
            number = self.dispatcher.number(route)
            assert self.dispatcher.find_route(number) is route
            opened.deadline = self.clock.now + ROUTE_TTL_S
        self.open.append(opened)

    @rule(conversation=conversations, tokens=tokens, text=texts)
    def ask(self, conversation: ConversationKey | None, tokens: int, text: bytes) -> None:
        """Asking changes nothing; the invariants see to that."""
        try:
            self.dispatcher.decide(turn(conversation, tokens, text=text))
        except NoNodeAvailable:
            assert NodeState.READY not in {node.state for node in self.nodes}

    @precondition(lambda self: self.open)
    @rule(position=positions)
    def accept(self, position: int) -> None:
        opened = self.open[position % len(self.open)]
        self.dispatcher.accepted(opened.route)
        opened.begun = True
        conversation = opened.route.turn.conversation
        if conversation is not None:
            known = self.pins.pop(conversation, None)
            if known is None and len(self.pins) == MAX_PINS:
                self.pins.pop(next(iter(self.pins)))
            self.pins[conversation] = opened.route.home, self.clock.now

    @precondition(lambda self: self.open)
    @rule(position=positions, how=st.sampled_from(["all", "some", "nothing", "no word"]))
    def serve(self, position: int, how: str) -> None:
        route = self._close(position)
        promised = route.decision.promised_tokens
        cached = {"all": promised, "some": promised // 2, "nothing": 0, "no word": None}[how]
        self.dispatcher.served(route, cached_tokens=cached)
        self.served += 1

    @precondition(lambda self: self.open)
    @rule(position=positions)
    def serve_not(self, position: int) -> None:
        self.dispatcher.not_served(self._close(position))

    @precondition(lambda self: self.open)
    @rule(position=positions)
    def fail(self, position: int) -> None:
        route = self._close(position)
        node, failures = route.node, route.node.failures
        is_news = failures == route.failures and node.state is not NodeState.GONE
        is_news = is_news and node.state is not NodeState.FAILED
        self.dispatcher.failed(route, "broke off")
        assert node.failures == failures + is_news
        assert node.state is NodeState.FAILED or not is_news

    # --- nodes ------------------------------------------------------------------------------

    @rule(position=positions, restarted=st.booleans())
    def probe(self, position: int, restarted: bool) -> None:
        node = self.nodes[position % len(self.nodes)]
        was_gone = node.state is NodeState.GONE
        self.dispatcher.node_answered(node, node.incarnation + restarted)
        expected = NodeState.DRAINING if node.told_to_drain else NodeState.READY
        assert node.state is (NodeState.GONE if was_gone else expected)

    @rule(
        position=positions, event=st.sampled_from(["draining", "failed", "ended", "drain", "undo"])
    )
    def change(self, position: int, event: str) -> None:
        node = self.nodes[position % len(self.nodes)]
        if event == "draining":
            self.dispatcher.node_draining(node)
        elif event == "failed":
            self.dispatcher.node_failed(node, "no answer")
        elif event == "ended":
            self.dispatcher.node_lost_its_cache(node)
            assert node.claims.held_tokens(turn(None, 9, text=b"one").prompt) == 0
        elif node.state is not NodeState.GONE:
            self.dispatcher.drain(node.name, drain=event == "drain")

    @rule(position=positions)
    def remove(self, position: int) -> None:
        node = self.nodes[position % len(self.nodes)]
        if node.state is not NodeState.GONE:
            self.dispatcher.remove_node(node)

    @rule(name=st.sampled_from("abcdef"))
    def add(self, name: str) -> None:
        if name not in {node.name for node in self.dispatcher.nodes()}:
            node = self.dispatcher.add_node("default", NodeSpec(name, "h:1"))
            node.claims = RememberedTexts()
            self.nodes.append(node)

    @rule(seconds=st.sampled_from([0.5, 30.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.open = [
            each for each in self.open if each.deadline is None or each.deadline > self.clock.now
        ]
        self.pins = {
            conversation: (home, used_at)
            for conversation, (home, used_at) in self.pins.items()
            if used_at > self.clock.now - PIN_TTL_S
        }

    # --- what always holds ------------------------------------------------------------------

    @invariant()
    def load_is_the_sum_over_open_routes(self) -> None:
        known = {id(node) for node in self.dispatcher.nodes()}
        for node in self.nodes:
            mine = [each for each in self.open if each.route.node is node]
            waiting = [each for each in mine if not each.begun]
            assert all_load(node) == (
                len(mine),
                sum(each.route.turn.prompt.num_tokens for each in mine),
                sum(each.route.uncached_tokens for each in waiting),
                len(mine) - len(waiting),
            )
            assert (id(node) in known) == (node.state is not NodeState.GONE)

    @invariant()
    def pins_are_those_of_the_model_and_bounded(self) -> None:
        assert len(self.dispatcher.conversations) == len(self.pins) <= MAX_PINS
        for conversation, (home, _) in self.pins.items():
            pin = self.dispatcher.conversations.get(conversation)
            assert isinstance(pin, Pin)
            assert pin.home == home
        for node in self.nodes:
            held = self.dispatcher.conversations.holdings(node.home).conversations
            assert held == sum(home == node.home for home, _ in self.pins.values())

    @invariant()
    def nodes_that_are_gone_claim_nothing(self) -> None:
        for node in self.nodes:
            if node.state is NodeState.GONE:
                assert isinstance(node.claims, RememberedTexts)
                assert node.claims.texts == []

    @invariant()
    def every_served_turn_is_counted_once(self) -> None:
        assert self.dispatcher.ledger.sums.turns == self.served
        assert sum(node.turns for node in self.nodes) == self.served

    def teardown(self) -> None:
        for each in self.open:
            self.dispatcher.not_served(each.route)
        for node in self.nodes:
            assert all_load(node) == (0, 0, 0, 0)
            assert node.prefill_left(self.clock.now) == 0

    def _close(self, position: int) -> OpenRoute:
        return self.open.pop(position % len(self.open)).route

    def _home_of(self, asked: Turn) -> Home | None:
        """Where it is pinned; when that cannot take the turn, where its latest open one went."""
        if asked.conversation is None:
            return None
        pinned = self.pins[asked.conversation][0] if asked.conversation in self.pins else None
        latest = [
            each.route.home
            for each in self.open
            if each.route.turn.conversation == asked.conversation
        ][-1:]
        for home in [*([pinned] if pinned else []), *latest]:
            if home.node not in asked.exclude and any(
                node.state is NodeState.READY and _lives(node, home) for node in self.nodes
            ):
                return home
        return pinned


def _lives(node: Node, home: Home) -> bool:
    """Whether it is the node's present life; lives are counted, so the first known is 1."""
    return home == node.home or (home == Home(node.name, 0) and node.incarnation == 1)


DispatcherMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestDispatcher = DispatcherMachine.TestCase
