"""Nodes told to drain: a word that outlives them, the same for all routers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

import pytest

from prefix_cache.client import NodeState
from prefix_cache.errors import InvalidArgument
from router.config import NodeSpec
from router.dispatcher import Dispatcher
from router.drains import MAX_NAMES, Drains, Word
from router.redis_drains import sharing_drains
from tests.redis_servers import RedisServer, redis_server
from tests.router.dispatching import dispatcher_over
from tests.router.http.eventually import eventually


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.redis_drains._INTERVAL_S", 0.02)


def drained(dispatcher: Dispatcher) -> str:
    """The nodes that drain, by letter."""
    return "".join(node.name for node in dispatcher.nodes() if node.state is NodeState.DRAINING)


# --- in one router ---------------------------------------------------------------------------


def test_a_node_that_comes_back_under_its_name_is_still_drained() -> None:
    """At another place, as when its URL changed in the config file."""
    dispatcher = dispatcher_over("ab")
    dispatcher.drain("a")
    dispatcher.remove_node(dispatcher.node("a"))

    again = dispatcher.add_node("default", NodeSpec("a", "elsewhere:1"))
    dispatcher.node_answered(again, 2)

    assert drained(dispatcher) == "a"
    dispatcher.drain("a", drain=False)
    dispatcher.node_answered(again, 2)
    assert drained(dispatcher) == ""


def test_a_drain_is_taken_back_while_the_node_is_gone() -> None:
    dispatcher = dispatcher_over("ab")
    dispatcher.drain("a")
    dispatcher.remove_node(dispatcher.node("a"))
    dispatcher.drain("a", drain=False)

    dispatcher.node_answered(dispatcher.add_node("default", NodeSpec("a", "h:1")), 1)

    assert drained(dispatcher) == ""
    for drain in (True, False):
        with pytest.raises(InvalidArgument, match="unknown node 'z'"):
            dispatcher.drain("z", drain=drain)


def test_a_node_that_drains_by_its_own_word_is_not_called_back_by_others() -> None:
    dispatcher = dispatcher_over("ab")
    dispatcher.node_draining(dispatcher.node("a"))

    dispatcher.learn_drains({"a": Word(5.0, False), "b": Word(5.0, True)})

    assert drained(dispatcher) == "ab"


def test_of_two_words_the_later_counts_in_whatever_order_they_arrive() -> None:
    drain, undo, again = Word(1.0, True), Word(2.0, False), Word(3.0, True)
    for words in ((drain, undo, again), (again, undo, drain), (undo, again, drain)):
        drains = Drains()
        for word in words:
            drains.learn({"a": word})
        assert drains.words == {"a": again}


def test_an_operator_has_the_last_word_whatever_the_clocks_of_routers_say() -> None:
    drains = Drains()
    drains.learn({"a": Word(2_000_000_000.0, True)})  # by a clock that is ahead

    drains.say("a", drains=False, now=1_800_000_000.0)

    assert "a" not in drains
    ((name, word),) = drains.words.items()
    assert (name, word.drains, word.said_at > 2_000_000_000.0) == ("a", False, True)


def test_words_are_bounded_and_the_oldest_goes_first() -> None:
    drains = Drains()
    for number in range(MAX_NAMES + 10):
        drains.say(f"node-{number}", drains=True, now=float(number))

    assert len(drains.words) == MAX_NAMES == 512
    assert "node-9" not in drains
    assert "node-10" in drains


# --- through Redis ---------------------------------------------------------------------------


@asynccontextmanager
async def a_router(url: str) -> AsyncGenerator[Dispatcher, None]:
    dispatcher = dispatcher_over("abc")
    async with sharing_drains(url, dispatcher):
        yield dispatcher


async def test_what_one_router_is_told_all_follow(server: RedisServer) -> None:
    async with a_router(server.url) as one, a_router(server.url) as other:
        one.drain("a")
        other.drain("b")
        await eventually(lambda: drained(one) == drained(other) == "ab")

        other.drain("a", drain=False)
        await eventually(lambda: drained(one) == drained(other) == "b")
        assert one.node("a").state is NodeState.JOINING


async def test_a_router_that_restarts_knows_before_its_first_turn(server: RedisServer) -> None:
    async with a_router(server.url) as before:
        before.drain("a")
        await eventually(lambda: bool(server.calls().get("set")))
    async with a_router(server.url) as after:
        assert drained(after) == "a"


async def test_what_is_said_while_redis_is_away_is_shared_when_it_is_back(
    server: RedisServer,
) -> None:
    async with a_router(server.url) as one, a_router(server.url) as other:
        one.drain("a")
        await eventually(lambda: drained(other) == "a")
        server.kill()
        one.drain("b")
        await asyncio.sleep(0.1)
        assert drained(other) == "a"
        server.start()
        await eventually(lambda: drained(one) == drained(other) == "ab")
    async with a_router(server.url) as after:
        assert drained(after) == "ab"


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x81\xa1a\x01", b"text"])
async def test_a_value_of_somebody_else_is_no_drain(server: RedisServer, value: bytes) -> None:
    with server.client() as client:
        client.set("prefix-cache:drains", value)
    async with a_router(server.url) as one, a_router(server.url) as other:
        assert drained(one) == ""
        one.drain("a")
        await eventually(lambda: drained(other) == "a")
