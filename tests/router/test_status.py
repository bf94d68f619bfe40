"""The documents that operators read: conversations, nodes, and why a turn went where it did."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from router.dispatcher import Dispatcher
from router.nodes import Home
from router.status import conversations_document, explanation_document, nodes_document
from tests.router.dispatching import CHAT, dispatcher_over, key, remember_texts, serve, turn


@pytest.fixture
def dispatcher() -> Dispatcher:
    return dispatcher_over("abc")


def through_json(document: dict[str, Any]) -> Any:
    """As a client sees it."""
    return msgspec.json.decode(msgspec.json.encode(document))


def test_the_conversations_used_last_are_shown_first(dispatcher: Dispatcher) -> None:
    for number in range(5):
        serve(dispatcher, key(number, "acme"))
    serve(dispatcher, key(1, "acme"), 200, cached_tokens=96)

    shown = through_json(conversations_document(dispatcher, limit=2))

    assert (shown["remembered"], shown["pinned"]) == (5, 5)
    assert [each["conversation"] for each in shown["conversations"]] == ["1", "4"]
    one = shown["conversations"][0]
    assert one["tenant"] == "acme"
    assert one["home"] in "abc"
    assert (one["sums"]["turns"], one["sums"]["delivered"]) == (2, 96)
    assert one["sums"]["hit_rate"] == 0.32
    assert [turn["reason"] for turn in one["last_turns"]] == ["new", "pinned"]
    assert one["last_turns"][1] == {
        "node": one["home"],
        "reason": "pinned",
        "prompt_tokens": 200,
        "available": 0,
        "promised": 0,
        "delivered": 96,
        "is_hashable": False,
        "prefilled": 104,
    }


def test_no_more_than_a_thousand_conversations_are_shown_at_once(dispatcher: Dispatcher) -> None:
    for number in range(1_001):
        serve(dispatcher, key(number))

    shown = conversations_document(dispatcher, limit=999_999_999)

    assert len(shown["conversations"]) == 1_000
    assert (shown["limit"], shown["remembered"]) == (1_000, 1_001)
    assert conversations_document(dispatcher, limit=3)["limit"] == 3


def test_long_keys_are_clipped_where_they_are_shown(dispatcher: Dispatcher) -> None:
    serve(dispatcher, key("c" * 600, "t" * 300))

    (shown,) = conversations_document(dispatcher, limit=10)["conversations"]

    assert (shown["tenant"], shown["conversation"]) == ("t" * 256, "c" * 256)


def test_every_node_is_shown_with_its_load_and_what_it_served(dispatcher: Dispatcher) -> None:
    home = serve(dispatcher, CHAT, 400, cached_tokens=100).node
    dispatcher.route(turn(tokens=500))
    home.models = frozenset({"m"})

    document = through_json(nodes_document(dispatcher))

    assert [node["name"] for node in document["nodes"]] == list("abc")
    assert next(node for node in document["nodes"] if node["name"] == home.name) == {
        "name": home.name,
        "pool": "default",
        "address": home.address,
        "url": "",
        "state": "READY",
        "models": ["m"],
        "in_flight": 1,
        "in_flight_tokens": 500,
        "queued_prefill": 500,
        "decoding": 0,
        "reported_running": 0,
        "conversations": 1,
        "committed_tokens": 400,
        "turns": 1,
        "prompt_tokens": 400,
        "told_tokens": 400,
        "cached_tokens": 100,
        "hit_rate": 0.25,
        "failures": 0,
        "lost_tokens": 0,
    }
    assert document["policies"] == {"default": "sticky"}
    assert document["conversations"] == 1
    assert (document["sums"]["unhashable"], document["sums"]["hit_rate"]) == (300, 0.25)


def test_an_engine_that_gives_no_word_has_no_hit_rate(dispatcher: Dispatcher) -> None:
    """Rather than one of 0: many engines say what was cached only when they are told to."""
    serve(dispatcher, CHAT, 400, cached_tokens=None)
    document = nodes_document(dispatcher)
    assert {node["hit_rate"] for node in document["nodes"]} == {None}
    assert document["sums"]["hit_rate"] is None

    serve(dispatcher, CHAT, 1_000, cached_tokens=500)
    assert nodes_document(dispatcher)["sums"]["hit_rate"] == 0.5


def test_a_decision_is_explained_term_by_term() -> None:
    dispatcher = dispatcher_over("abc", policy="least_load")
    remember_texts(dispatcher)["b"].texts.append(turn(tokens=64, text=b"text").prompt)
    dispatcher.node("a").in_flight_tokens = 300
    dispatcher.node_failed(dispatcher.node("c"), "gone")

    document = through_json(explanation_document(dispatcher.decide(turn(text=b"text"))))

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
    return str(explanation_document(dispatcher.decide(turn()))["in_words"])


def test_the_reason_is_told_in_words() -> None:
    dispatcher = dispatcher_over("ab", policy="least_load")
    dispatcher.node("b").in_flight_tokens = 5
    serve(dispatcher)
    assert words(dispatcher) == "a is the conversation's home"

    dispatcher.node("a").in_flight_tokens = 10
    assert words(dispatcher) == "its home a costs more: b costs least (5.0), next is a (10.0)"

    dispatcher.node("b").in_flight_tokens = 10
    assert words(dispatcher) in (
        "its home a costs more: b costs as little as a (10.0) and wins the tie",
        "a is the conversation's home",
    )

    dispatcher.node_failed(dispatcher.node("a"), "gone")
    assert words(dispatcher) == "its home a is FAILED: b is the only one that can take it"

    dispatcher.node_answered(dispatcher.node("a"), 2)
    dispatcher.node_failed(dispatcher.node("b"), "gone")
    assert words(dispatcher) == (
        "its home a was restarted and holds nothing of it: a is the only one that can take it"
    )

    dispatcher.conversations.pin(CHAT, Home("z", 1), 10, written_at=0.0)
    assert words(dispatcher) == "its home z is gone: a is the only one that can take it"
