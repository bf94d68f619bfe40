"""Pins: whose they are, how long they last, how many there are."""

from __future__ import annotations

import pytest

from router.conversations import Conversations, Holdings, Pin
from router.nodes import Home
from router.turn import ConversationKey
from tests.router.clock import Clock

A1, B1 = Home("a", 1), Home("b", 1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def conversations(clock: Clock) -> Conversations:
    return Conversations(max_pins=3, ttl_s=60.0, clock=clock)


def key(conversation: str, tenant: str = "") -> ConversationKey:
    return ConversationKey(tenant, conversation)


def test_a_conversation_is_at_home_where_it_was_pinned_last(conversations: Conversations) -> None:
    assert conversations.get(key("chat")) is None

    conversations.pin(key("chat"), A1, 100, written_at=0.0)
    conversations.pin(key("chat"), B1, 250, written_at=0.0)

    assert conversations.get(key("chat")) == Pin(B1, 250, 1000.0, 0.0)
    assert len(conversations) == 1


def test_keys_are_compared_whole(clock: Clock) -> None:
    """Tenants with equal ids, and ids that begin alike, have pins of their own."""
    conversations = Conversations(max_pins=10, ttl_s=60.0, clock=clock)
    keys = [key("chat-1", "A"), key("chat-1", "B"), key("chat-10", "A"), key("chat-10", "B")]
    for tokens, each in enumerate(keys):
        conversations.pin(each, A1, tokens, written_at=0.0)

    assert [conversations.get(each) for each in keys] == [
        Pin(A1, 0, 1000.0, 0.0),
        Pin(A1, 1, 1000.0, 0.0),
        Pin(A1, 2, 1000.0, 0.0),
        Pin(A1, 3, 1000.0, 0.0),
    ]
    assert conversations.get(key("chat", "A")) is None
    assert conversations.get(key("1", "Achat-")) is None


def test_an_unused_pin_expires_and_a_used_one_does_not(
    conversations: Conversations, clock: Clock
) -> None:
    conversations.pin(key("idle"), A1, 100, written_at=0.0)
    conversations.pin(key("busy"), A1, 100, written_at=0.0)
    clock.advance(59)
    conversations.pin(key("busy"), A1, 200, written_at=0.0)
    assert conversations.get(key("idle")) is not None

    clock.advance(1)

    assert conversations.get(key("idle")) is None
    assert conversations.get(key("busy")) == Pin(A1, 200, 1059.0, 0.0)
    assert conversations.holdings(A1) == Holdings(1, 200)


def test_looking_is_no_use(conversations: Conversations, clock: Clock) -> None:
    conversations.pin(key("chat"), A1, 100, written_at=0.0)
    clock.advance(59)
    conversations.get(key("chat"))
    clock.advance(1)

    assert conversations.get(key("chat")) is None


def test_above_the_bound_the_pin_unused_for_longest_goes(conversations: Conversations) -> None:
    for name in ("first", "second", "third"):
        conversations.pin(key(name), A1, 10, written_at=0.0)
    conversations.pin(key("first"), A1, 20, written_at=0.0)

    conversations.pin(key("fourth"), B1, 10, written_at=0.0)

    assert conversations.get(key("second")) is None
    assert [conversations.get(key(name)) for name in ("first", "third", "fourth")] == [
        Pin(A1, 20, 1000.0, 0.0),
        Pin(A1, 10, 1000.0, 0.0),
        Pin(B1, 10, 1000.0, 0.0),
    ]


def test_a_burst_of_one_turn_conversations_stays_within_the_bound(clock: Clock) -> None:
    conversations = Conversations(max_pins=100, ttl_s=60.0, clock=clock)
    for number in range(10_000):
        conversations.pin(key(f"burst-{number}"), Home("a", number), 1, written_at=0.0)
        conversations.pin(key("active"), B1, number, written_at=0.0)

    assert len(conversations) == 100
    assert conversations.get(key("active")) == Pin(B1, 9_999, 1000.0, 0.0)
    assert conversations.holdings(Home("a", 0)) == Holdings(0, 0)
    assert conversations.holdings(Home("a", 9_999)) == Holdings(1, 1)


def test_holdings_follow_every_pin(conversations: Conversations) -> None:
    conversations.pin(key("one"), A1, 100, written_at=0.0)
    conversations.pin(key("two"), A1, 50, written_at=0.0)
    conversations.pin(key("three"), B1, 7, written_at=0.0)
    assert conversations.holdings(A1) == Holdings(2, 150)

    conversations.pin(key("one"), B1, 130, written_at=0.0)

    assert conversations.holdings(A1) == Holdings(1, 50)
    assert conversations.holdings(B1) == Holdings(2, 137)


def test_two_lives_of_a_node_are_two_homes(conversations: Conversations) -> None:
    conversations.pin(key("before"), Home("a", 1), 100, written_at=0.0)
    conversations.pin(key("after"), Home("a", 2), 30, written_at=0.0)

    assert conversations.holdings(Home("a", 1)) == Holdings(1, 100)
    assert conversations.holdings(Home("a", 2)) == Holdings(1, 30)
