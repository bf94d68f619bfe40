"""Counting what was saved."""

from __future__ import annotations

from prefix_cache.replay.player import Play, PlayedTurn, UnservedTurn
from prefix_cache.replay.savings import Savings, Totals, sticky_turns, together


def turn(
    conversation: str, number: int, node: str, prompt: int = 100, cached: int = 0
) -> PlayedTurn:
    return PlayedTurn(conversation, number, prompt, cached, node)


def test_rates_count_tokens_not_turns() -> None:
    totals = Totals.of([turn("a", 1, "n1", 1000, 0), turn("a", 2, "n1", 3000, 2000)])
    assert totals == Totals(prompt_tokens=4000, cached_tokens=2000)
    assert totals.prefilled_tokens == 2000
    assert totals.hit_rate == 0.5
    assert totals.saved_ratio(no_cache=Totals(4000, 0)) == 2.0


def test_shares_of_nothing_are_undefined() -> None:
    assert Totals.of([]).hit_rate is None
    assert Totals.of([]).saved_ratio(Totals(100, 0)) is None
    assert sticky_turns([]) is None
    assert sticky_turns([turn("a", 1, "n1"), turn("b", 1, "n2")]) is None


def test_a_turn_is_sticky_when_it_follows_the_turn_before() -> None:
    """A conversation that had to move once has a new home then."""
    played = [
        turn("a", 1, "n1"),
        turn("b", 1, "n1"),
        turn("a", 2, "n1"),
        turn("b", 2, "n2"),
        turn("b", 3, "n2"),
        turn("b", 4, "n2"),
    ]
    assert sticky_turns(played) == 0.75


def savings() -> Savings:
    return Savings(
        sticky=Play([turn("a", 1, "n1", 100, 0), turn("a", 2, "n1", 200, 96)]),
        round_robin=Play([turn("a", 1, "n1", 100, 0), turn("a", 2, "n2", 200, 0)]),
        no_cache=Play([turn("a", 1, "n1", 100, 0)], [UnservedTurn("a", 2, 200, "no room")], 1, 150),
    )


def test_the_json_has_every_turn_and_the_totals_of_those_that_all_plays_served() -> None:
    """Sticky served a turn that no cache did not; counted, it would lower the savings."""
    assert savings().as_json() == {
        "turns": [
            {
                "conversation": "a",
                "turn": 1,
                "prompt_tokens": 100,
                "cached_tokens": 0,
                "prefilled_tokens": 100,
                "node": "n1",
            },
            {
                "conversation": "a",
                "turn": 2,
                "prompt_tokens": 200,
                "cached_tokens": 96,
                "prefilled_tokens": 104,
                "node": "n1",
            },
        ],
        "totals": {
            "prompt_tokens": 100,
            "cached_tokens": 0,
            "prefilled_tokens": 100,
            "hit_rate": 0.0,
            "saved_ratio": 1.0,
        },
        "round_robin": {
            "prompt_tokens": 100,
            "cached_tokens": 0,
            "prefilled_tokens": 100,
            "hit_rate": 0.0,
            "saved_ratio": 1.0,
        },
        "no_cache": {
            "prompt_tokens": 100,
            "cached_tokens": 0,
            "prefilled_tokens": 100,
            "hit_rate": 0.0,
            "saved_ratio": 1.0,
        },
        "compared_turns": 1,
        "sticky_turns": 1.0,
        "not_served": {
            "sticky": [],
            "round_robin": [],
            "no_cache": [
                {"conversation": "a", "turn": 2, "prompt_tokens": 200, "error": "no room"}
            ],
        },
        "retried_turns": {"sticky": 0, "round_robin": 0, "no_cache": 1},
        "lost_tokens": {"sticky": 0, "round_robin": 0, "no_cache": 150},
    }


def test_several_inputs_add_up() -> None:
    both = together([savings(), savings()])
    assert Totals.of(both.sticky.turns) == Totals(600, 192)
    assert both.no_cache.retried_turns == 2
    assert both.no_cache.lost_tokens == 300
    assert len(both.no_cache.not_served) == 2
