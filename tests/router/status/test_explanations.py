"""Why a turn went where it did, as operators read it."""

from __future__ import annotations

from msgspec import to_builtins

from router.dispatcher import Dispatcher
from router.nodes import Home
from router.status.explanations import explain
from tests.router.dispatching import CHAT, dispatcher_over, remember_texts, serve, turn


def test_a_decision_is_explained_term_by_term() -> None:
    dispatcher = dispatcher_over("abc", policy="least_load")
    remember_texts(dispatcher)["b"].texts.append(turn(tokens=64, text=b"text").prompt)
    dispatcher.node("a").in_flight_tokens = 300
    dispatcher.node_failed(dispatcher.node("c"), "gone")

    document = to_builtins(explain(dispatcher.decide(turn(text=b"text"))))

    assert document == {
        "node": "b",
        "reason": "new",
        "in_words": "no home yet: b costs least (0.0), next is a (300.0)",
        "prompt_tokens": 100,
        "hashable": True,
        "promised_tokens": 64,
        "available_tokens": 64,
        "runner_up": "a",
        "moved_from": None,
        "lost_tokens": 0,
        "candidates": [
            {
                "node": "a",
                "cached_tokens": 0,
                "is_home": False,
                "cost": {"in_flight_tokens": 300, "in_flight": 0},
                "sum": 300,
            },
            {
                "node": "b",
                "cached_tokens": 64,
                "is_home": False,
                "cost": {"in_flight_tokens": 0, "in_flight": 0},
                "sum": 0,
            },
        ],
        "left_out": [{"node": "c", "why": "is FAILED"}],
    }


def words(dispatcher: Dispatcher) -> str:
    return explain(dispatcher.decide(turn())).in_words


def test_the_reason_is_told_in_words() -> None:
    dispatcher = dispatcher_over("ab", policy="least_load")
    dispatcher.node("b").in_flight_tokens = 5
    serve(dispatcher)
    assert words(dispatcher) == "a is its home and costs least (0.0), next is b (5.0)"

    dispatcher.node("a").in_flight_tokens = 10
    assert words(dispatcher) == "its home a costs more: b costs least (5.0), next is a (10.0)"

    dispatcher.node("b").in_flight_tokens = 10
    assert words(dispatcher) in (
        "its home a costs no less: b costs as little as a (10.0) and wins the tie",
        "a is its home and costs as little as b (10.0) and wins the tie",
    )

    dispatcher.node_failed(dispatcher.node("a"), "gone")
    assert words(dispatcher) == "its home a is FAILED: b is the only one that can take it"

    dispatcher.node_answered(dispatcher.node("a"), 2)
    dispatcher.node_failed(dispatcher.node("b"), "gone")
    assert words(dispatcher) == "its home a lost its cache: a is the only one that can take it"

    dispatcher.conversations.pin(CHAT, Home("z", 1), 10, written_at=0.0)
    assert words(dispatcher) == "its home z is gone: a is the only one that can take it"
