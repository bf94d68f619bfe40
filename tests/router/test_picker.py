"""Filter, score, pick, explain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from prefix_cache.client import NodeState, RouteReason
from prefix_cache.errors import NoNodeAvailable
from router.conversations import Pin
from router.nodes import Home, Node
from router.picker import Decision, pick
from router.policies import Candidate, Cost
from router.turn import Turn
from tests.router.dispatching import RememberedTexts, key, turn


@dataclass
class Priced:
    """A policy that is told what each node costs; a home is free where it ``stays``."""

    prices: dict[str, float]
    stays: bool = True
    terms: tuple[str, ...] = ("price", "way")

    def costs(self, turn: Turn, candidates: Sequence[Candidate], now: float) -> list[Cost]:
        return [
            (0.0, 0.0)
            if self.stays and each.is_home
            else (self.prices.get(each.node.name, 1.0), 1.0)
            for each in candidates
        ]


def node(name: str, state: NodeState = NodeState.READY, incarnation: int = 1) -> Node:
    return Node(name, f"127.0.0.1:{ord(name)}", state=state, incarnation=incarnation)


def pin(name: str, incarnation: int = 1) -> Pin:
    return Pin(Home(name, incarnation), 480, 0.0, 0.0)


def picked(
    nodes: list[Node],
    pinned: Pin | None = None,
    *,
    exclude: str = "",
    stays: bool = True,
    **prices: float,
) -> Decision:
    return pick(nodes, turn(exclude=exclude), pinned, Priced(prices, stays), 0.0)


def outcome(decision: Decision) -> tuple[str, RouteReason, str, int]:
    return decision.node.name, decision.reason, decision.moved_from, decision.lost_tokens


def test_a_pinned_conversation_goes_home() -> None:
    decision = picked([node("a"), node("b")], pin("a"), b=0.5)

    assert outcome(decision) == ("a", RouteReason.PINNED, "", 0)


def test_a_conversation_without_a_pin_is_new_and_goes_where_it_costs_least() -> None:
    decision = picked([node("a"), node("b"), node("c")], a=3, b=2, c=9)

    assert outcome(decision) == ("b", RouteReason.NEW, "", 0)
    assert decision.costs == [(3, 1.0), (2, 1.0), (9, 1.0)]
    assert decision.terms == ("price", "way")
    assert decision.runner_up is decision.candidates[0]


@pytest.mark.parametrize("state", [NodeState.JOINING, NodeState.FAILED, NodeState.DRAINING])
def test_a_home_that_cannot_take_the_turn_is_left_and_the_loss_named(state: NodeState) -> None:
    decision = picked([node("a", state), node("b")], pin("a"))

    assert outcome(decision) == ("b", RouteReason.MOVED, "a", 480)
    assert [(each.name, why) for each, why in decision.left_out] == [("a", f"is {state.name}")]
    assert decision.runner_up is None


def test_an_excluded_home_is_left() -> None:
    assert outcome(picked([node("a"), node("b")], pin("a"), exclude="a")) == (
        "b",
        RouteReason.MOVED,
        "a",
        480,
    )


def test_a_restarted_home_lost_the_conversation_even_where_it_is_chosen_again() -> None:
    decision = picked([node("a", incarnation=2)], pin("a", 1))

    assert outcome(decision) == ("a", RouteReason.MOVED, "a", 480)
    assert not decision.candidates[0].is_home


def test_a_home_that_is_no_node_any_more_is_left() -> None:
    assert outcome(picked([node("a")], pin("gone"))) == ("a", RouteReason.MOVED, "gone", 480)


def test_a_policy_that_leaves_a_healthy_home_is_told_on() -> None:
    nodes = [node("a"), node("b")]

    assert outcome(picked(nodes, pin("a"), stays=False, a=1, b=2))[1] is RouteReason.PINNED
    assert outcome(picked(nodes, pin("a"), stays=False, a=2, b=1)) == (
        "b",
        RouteReason.MOVED,
        "a",
        480,
    )


def test_ties_are_broken_by_the_conversation_and_not_by_the_order_of_nodes() -> None:
    nodes = [node(name) for name in "abcd"]
    policy = Priced({})

    def homes(fleet: list[Node]) -> list[str]:
        return [pick(fleet, turn(key(number)), None, policy, 0.0).node.name for number in range(40)]

    assert homes(nodes) == homes(nodes[::-1])
    assert set(homes(nodes)) == set("abcd")


def test_the_table_says_what_each_node_is_claimed_to_hold() -> None:
    a, b, c = node("a"), node("b"), node("c", NodeState.FAILED)
    for each, tokens in ((a, 30), (b, 1_000), (c, 90)):
        each.claims = claims = RememberedTexts()
        claims.texts.append(turn(tokens=tokens, text=b"begin").prompt)

    decision = pick([a, b, c], turn(tokens=100, text=b"begin"), None, Priced({"b": 9}), 0.0)

    assert [each.cached_tokens for each in decision.candidates] == [30, 100]
    assert (decision.node, decision.promised_tokens, decision.available_tokens) == (a, 30, 100)
    assert (decision.prompt_tokens, decision.is_hashable) == (100, True)


def test_claims_are_not_asked_about_a_prompt_without_tokens() -> None:
    a = node("a")
    a.claims = claims = RememberedTexts()

    decision = pick([a], turn(tokens=100), None, Priced({}), 0.0)

    assert (decision.promised_tokens, decision.is_hashable, claims.asked) == (0, False, 0)


def test_with_no_node_left_the_error_says_why_for_each() -> None:
    nodes = [
        node("a", NodeState.FAILED),
        node("b", NodeState.DRAINING),
        node("c"),
        node("d", NodeState.JOINING),
    ]

    with pytest.raises(NoNodeAvailable) as caught:
        picked(nodes, exclude="cx")

    assert str(caught.value) == (
        "no node can take the turn: a is FAILED, b is DRAINING, c is excluded, d is JOINING"
    )
    assert caught.value.details == {
        "nodes": "a is FAILED, b is DRAINING, c is excluded, d is JOINING"
    }


def test_a_pool_without_a_node_says_so() -> None:
    with pytest.raises(NoNodeAvailable, match="the pool has no node"):
        picked([])


# --- pins of other routers ------------------------------------------------------------------


def learned(tokens: int = 480, written_at: float = 5.0) -> Pin:
    return Pin(Home("a", 1), tokens, 0.0, written_at, is_learned=True)


def promised(home: Node, pinned: Pin, tokens: int = 500) -> tuple[int, bool]:
    decision = pick([home], turn(tokens=tokens, text=b"x"), pinned, Priced({}), 0.0)
    return decision.promised_tokens, decision.rests_on_pin


def test_what_another_router_sent_home_counts_for_prompts_that_can_go_on_from_it() -> None:
    home = node("a")
    assert promised(home, learned()) == (480, True)
    assert promised(home, learned(), tokens=480) == (480, True)
    assert promised(home, learned(), tokens=479) == (0, False)  # it was made shorter
    assert promised(home, pin("a")) == (0, False)  # our own: claims here know of it


def test_routers_that_estimate_tokens_differently_compare_bytes() -> None:
    """One of them counts a token for four bytes, the other learnt that it is a token each."""
    home = node("a")
    sent = learned()._replace(committed_tokens=4_000, text_bytes=4_000)
    for text_bytes, tokens, expected in ((5_000, 1_250, 1_000), (4_000, 1_000, 1_000)):
        asked = turn(tokens=tokens, text=bytes(text_bytes))
        assert pick([home], asked, sent, Priced({}), 0.0).promised_tokens == expected
    shorter = turn(tokens=3_999, text=bytes(3_999))
    assert pick([home], shorter, sent, Priced({}), 0.0).promised_tokens == 0


def test_what_claims_here_know_better_rests_on_no_pin() -> None:
    home = node("a")
    home.claims = claims = RememberedTexts()
    claims.accepted(turn(tokens=490, text=b"x").prompt)
    assert promised(home, learned()) == (490, False)


def test_a_pin_from_before_the_cache_was_lost_says_nothing() -> None:
    home = node("a")
    home.lost_at = 5.0
    assert promised(home, learned(written_at=5.0)) == (0, False)
    assert promised(home, learned(written_at=5.1)) == (480, True)


def test_a_home_of_unknown_life_is_the_first_that_is_known() -> None:
    first, next_one = node("a", incarnation=7), node("a", incarnation=8)
    first.first_incarnation = next_one.first_incarnation = 7
    assert picked([first, node("b")], pin("a", 0)).reason is RouteReason.PINNED
    assert picked([next_one, node("b")], pin("a", 0)).reason is RouteReason.MOVED
