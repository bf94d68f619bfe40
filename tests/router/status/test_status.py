"""What operators read of conversations and nodes, of a router that is one process."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from router.decisions import Decisions
from router.dispatcher import Dispatcher
from router.status import Status
from tests.router.dispatching import CHAT, dispatcher_over, key, serve, turn


@pytest.fixture
def dispatcher() -> Dispatcher:
    return dispatcher_over("abc")


@pytest.fixture
def status(dispatcher: Dispatcher) -> Status:
    return Status(dispatcher, Decisions(max_decisions=10), CollectorRegistry())


def through_json(document: dict[str, Any]) -> Any:
    """As a client sees it."""
    return msgspec.json.decode(msgspec.json.encode(document))


async def test_the_conversations_used_last_are_shown_first(
    dispatcher: Dispatcher, status: Status
) -> None:
    for number in range(5):
        serve(dispatcher, key(number, "acme"))
    serve(dispatcher, key(1, "acme"), 200, cached_tokens=96)

    shown = through_json(await status.conversations(2))

    assert (shown["remembered"], shown["pinned"]) == (5, 5)
    assert [each["conversation"] for each in shown["conversations"]] == ["1", "4"]
    one = shown["conversations"][0]
    assert one["tenant"] == "acme"
    assert one["home"] in "abc"
    assert (one["sums"]["turns"], one["sums"]["delivered"]) == (2, 96)
    assert one["sums"]["hit_rate"] == 0.32
    assert [turn["reason"] for turn in one["last_turns"]] == ["new", "pinned"]
    first, last = one["last_turns"]
    assert 0 < first.pop("at") <= last.pop("at")
    assert last == {
        "node": one["home"],
        "reason": "pinned",
        "prompt_tokens": 200,
        "available": 0,
        "promised": 0,
        "delivered": 96,
        "is_hashable": False,
        "prefilled": 104,
    }
    assert shown["workers"] == {"count": 1, "answered": 1}


async def test_no_more_than_a_thousand_conversations_are_shown_at_once(
    dispatcher: Dispatcher, status: Status
) -> None:
    for number in range(1_001):
        serve(dispatcher, key(number))

    shown = await status.conversations(999_999_999)

    assert len(shown["conversations"]) == 1_000
    assert (shown["limit"], shown["remembered"]) == (1_000, 1_001)
    assert (await status.conversations(3))["limit"] == 3


async def test_long_keys_are_clipped_where_they_are_shown(
    dispatcher: Dispatcher, status: Status
) -> None:
    serve(dispatcher, key("c" * 600, "t" * 300))

    (shown,) = (await status.conversations(10))["conversations"]

    assert (shown["tenant"], shown["conversation"]) == ("t" * 256, "c" * 256)


async def test_every_node_is_shown_with_its_load_and_what_it_served(
    dispatcher: Dispatcher, status: Status
) -> None:
    home = serve(dispatcher, CHAT, 400, cached_tokens=100).node
    dispatcher.route(turn(tokens=500))
    home.models = frozenset({"m"})

    document = through_json(await status.nodes())

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


async def test_an_engine_that_gives_no_word_has_no_hit_rate(
    dispatcher: Dispatcher, status: Status
) -> None:
    """Rather than one of 0: many engines say what was cached only when they are told to."""
    serve(dispatcher, CHAT, 400, cached_tokens=None)
    document = await status.nodes()
    assert {node["hit_rate"] for node in document["nodes"]} == {None}
    assert document["sums"]["hit_rate"] is None

    serve(dispatcher, CHAT, 1_000, cached_tokens=500)
    assert (await status.nodes())["sums"]["hit_rate"] == 0.5
