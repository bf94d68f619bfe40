"""Nodes that announce themselves in a real Redis, and the router that finds them there."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from prefix_cache.client import AsyncNodeClient, NodeState
from prefix_cache.redis_client import connect_redis
from prefix_cache.registry import Announcement, RegistryReader, announcing
from router.config import PoolConfig, RouterConfig
from router.discovery.discovering import discovering
from router.dispatcher import Dispatcher
from router.watcher import Watchers
from tests.cli.commands import first_line, run, running
from tests.redis_servers import RedisServer, redis_cluster, redis_server

DEADLINE_S = 20.0
ENGINE = Announcement(name="e", url="http://127.0.0.1:1", incarnation=7)


pytestmark = pytest.mark.usefixtures("beats_fast")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def beats_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who announces itself in this process, and who looks, do so often."""
    monkeypatch.setattr("prefix_cache.registry.HEARTBEAT_S", 0.02)
    monkeypatch.setattr("router.discovery.registry._INTERVAL_S", 0.02)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def announced(url: str) -> list[Announcement]:
    redis = connect_redis(url, timeout_s=1.0)
    try:
        return await RegistryReader(redis).read()
    finally:
        await redis.aclose()


async def until_announced(url: str, *expected: Announcement) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (seen := await announced(url)) != list(expected):
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.01)


async def test_an_announcement_is_there_as_long_as_its_node_says_so(server: RedisServer) -> None:
    left, right = Announcement(name="a", address="h:1"), Announcement(name="b", url="http://h:2")
    async with announcing(server.url, lambda: left):
        async with announcing(server.url, lambda: right):
            await until_announced(server.url, left, right)
        assert await announced(server.url) == [left]
    assert await announced(server.url) == []


async def test_an_announcement_ends_by_itself(server: RedisServer) -> None:
    async with announcing(server.url, lambda: ENGINE):
        await until_announced(server.url, ENGINE)
        with server.client() as client:
            (key,) = client.keys("*:node:e")
            assert 3000 < client.pttl(key) <= 5000


async def test_a_new_incarnation_replaces_the_one_before(server: RedisServer) -> None:
    lives = [ENGINE, Announcement(name="e", url="http://127.0.0.1:1", incarnation=8)]
    async with announcing(server.url, lambda: lives[0]):
        await until_announced(server.url, lives[0])
        del lives[0]
        await until_announced(server.url, lives[0])


async def test_who_ends_late_does_not_withdraw_its_successor(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No heartbeat of the first writes over its successor meanwhile.
    monkeypatch.setattr("prefix_cache.registry.HEARTBEAT_S", 60.0)
    successor = Announcement(name="e", url="http://127.0.0.1:2", incarnation=8)
    async with announcing(server.url, lambda: ENGINE):
        await until_announced(server.url, ENGINE)
        new = announcing(server.url, lambda: successor)
        await new.__aenter__()
        await until_announced(server.url, successor)
    assert await announced(server.url) == [successor]
    await new.__aexit__(None, None, None)


async def test_a_registry_that_is_away_stops_nobody(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.kill()
    async with announcing(server.url, lambda: ENGINE):
        await until(lambda: "the registry cannot be reached" in caplog.text)
        server.start()
        await until_announced(server.url, ENGINE)
        server.kill()


async def test_who_announces_itself_can_end_at_any_moment(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a command, too, where the client of Redis may lose a cancellation."""
    monkeypatch.setattr("prefix_cache.registry.HEARTBEAT_S", 0.0)
    for number in range(100):
        async with announcing(server.url, lambda: ENGINE):
            await asyncio.sleep(0.0003 * (number % 10))
    assert await announced(server.url) == []


async def test_what_is_no_announcement_is_left_out_and_said_once_until_it_changes(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async with announcing(server.url, lambda: ENGINE), a_router(server.url) as router:
        await until(lambda: "e" in urls(router))
        with server.client() as client:
            client.sadd("prefix-cache:{registry}:names", "x", "never-there")
            for count, value in enumerate((b"\xc1", b"\xa1x"), 1):
                client.set("prefix-cache:{registry}:node:x", value)
                looks = server.calls()["smembers"]
                await until(lambda looks=looks: server.calls()["smembers"] > looks + 5)  # type: ignore[misc]
                said = caplog.text.count("the registry holds no announcement under b'x': ")
                assert said == count
        assert urls(router) == {"e": "http://127.0.0.1:1"}


async def test_two_nodes_of_one_name_say_so_once_each(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """As by the default name of two nodes on one machine: one of them gets no turn."""
    other = Announcement(name="e", address="h:1", url="http://127.0.0.1:2")
    async with announcing(server.url, lambda: ENGINE), announcing(server.url, lambda: other):
        await until(lambda: "at h:1,http://127.0.0.1:2" in caplog.text)
        await until(lambda: "at http://127.0.0.1:1" in caplog.text)
        beats = server.calls()["sadd"]
        await until(lambda: server.calls()["sadd"] > beats + 10)
    said = [record.getMessage() for record in caplog.records]
    assert sum("another node announces itself as 'e' too" in each for each in said) == 2


async def test_a_node_that_comes_back_elsewhere_is_no_rival_of_itself(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The announcement of a life that was killed is there for a few seconds."""
    elsewhere = Announcement(name="e", url="http://127.0.0.1:2", incarnation=8)
    with server.client() as client:
        client.set("prefix-cache:{registry}:node:e", msgspec.msgpack.encode(ENGINE))
    async with announcing(server.url, lambda: elsewhere):
        await until_announced(server.url, elsewhere)
        beats = server.calls()["sadd"]
        await until(lambda: server.calls()["sadd"] > beats + 5)
    assert caplog.records == []


async def test_a_cluster_keeps_the_registry_in_one_place() -> None:
    with redis_cluster() as servers:
        url = servers[0].url.replace("redis:", "redis+cluster:")
        other = Announcement(name="f", url="http://127.0.0.1:2")
        async with announcing(url, lambda: ENGINE), announcing(url, lambda: other):
            await until_announced(url, ENGINE, other)
        assert await announced(url) == []


# --- the router's side -----------------------------------------------------------------------


@asynccontextmanager
async def a_router(url: str, **pool: Any) -> AsyncGenerator[Dispatcher, None]:
    """A router with real watchers whose pool takes its nodes from the registry."""
    config = RouterConfig(
        pools=(PoolConfig(registry=True, **pool),), redis=url, probe_interval_s=0.05
    )
    dispatcher = Dispatcher(config)
    watchers = Watchers(dispatcher, config)
    try:
        async with discovering(dispatcher, watchers, config):
            yield dispatcher
    finally:
        await watchers.close()


def urls(dispatcher: Dispatcher) -> dict[str, str]:
    return {node.name: node.url for node in dispatcher.nodes()}


async def test_nodes_come_and_go_with_their_announcements(server: RedisServer) -> None:
    async with a_router(server.url) as router:
        assert urls(router) == {}
        async with announcing(server.url, lambda: ENGINE):
            await until(lambda: urls(router) == {"e": "http://127.0.0.1:1"})
        await until(lambda: urls(router) == {})


async def test_what_is_announced_before_the_router_starts_is_there_at_once(
    server: RedisServer,
) -> None:
    async with announcing(server.url, lambda: ENGINE):
        await until_announced(server.url, ENGINE)
        async with a_router(server.url) as router:
            assert urls(router) == {"e": "http://127.0.0.1:1"}


async def test_nodes_of_other_pools_and_malformed_ones_are_left_out(
    server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    other = Announcement(name="o", url="http://127.0.0.1:2", pool="other")
    secure = Announcement(name="s", url="https://127.0.0.1:3")
    nowhere = Announcement(name="n")
    async with (
        announcing(server.url, lambda: other),
        announcing(server.url, lambda: secure),
        announcing(server.url, lambda: nowhere),
        announcing(server.url, lambda: ENGINE),
    ):
        await until_announced(server.url, ENGINE, nowhere, other, secure)
        async with a_router(server.url) as router:
            assert urls(router) == {"e": "http://127.0.0.1:1"}
    assert caplog.text.count("the announcement of 's' is left out: ") == 1
    assert caplog.text.count("the announcement of 'n' is left out: ") == 1


async def test_an_engine_that_restarted_holds_nothing_of_before(server: RedisServer) -> None:
    lives = [ENGINE, Announcement(name="e", url="http://127.0.0.1:1", incarnation=8)]
    async with announcing(server.url, lambda: lives[0]), a_router(server.url) as router:
        await until(lambda: "e" in urls(router))
        before = router.node("e")
        del lives[0]
        await until(lambda: before.state is NodeState.GONE and "e" in urls(router))
        assert router.node("e") is not before


async def test_a_redis_that_comes_back_empty_takes_no_node_away(server: RedisServer) -> None:
    async with announcing(server.url, lambda: ENGINE), a_router(server.url) as router:
        await until(lambda: "e" in urls(router))
        node = router.node("e")
        server.kill()
        server.start()
        await until_announced(server.url, ENGINE)
        looks = server.calls()["smembers"]
        await until(lambda: server.calls()["smembers"] > looks + 2)
        assert router.node("e") is node


@dataclass
class NodeProcess:
    """A ``prefix-cache node`` that announces itself."""

    address: str
    kill: Callable[[], None]
    incarnation: Callable[[], Awaitable[int]]


@asynccontextmanager
async def a_node(redis: str, *options: str) -> AsyncGenerator[NodeProcess, None]:
    with running(
        *("node", "--listen", "127.0.0.1:0", "--num-blocks", "64", "--name", "left"),
        *("--announce", redis, *options),
    ) as process:
        address = first_line(process).removeprefix("listening on ")

        async def incarnation() -> int:
            async with AsyncNodeClient(address) as client:
                return (await client.info()).incarnation

        yield NodeProcess(address, process.kill, incarnation)
        process.send_signal(signal.SIGTERM)
        process.wait(30)


async def test_a_node_says_all_of_itself_and_withdraws_at_its_end(server: RedisServer) -> None:
    options = ("--engine-url", "http://127.0.0.1:1", "--pool", "chat", "--model", "llama")
    async with a_node(server.url, *options, "--block-size", "32") as node:
        await until_announced(
            server.url,
            Announcement(
                name="left",
                pool="chat",
                address=node.address,
                url="http://127.0.0.1:1",
                incarnation=await node.incarnation(),
                model="llama",
                block_size=32,
            ),
        )
    assert await announced(server.url) == []


async def test_a_killed_node_is_gone_soon_and_comes_back_as_another(server: RedisServer) -> None:
    async with a_router(server.url) as router:
        async with a_node(server.url) as node:
            first = await node.incarnation()
            await until(lambda: "left" in urls(router))
            await until(lambda: router.node("left").incarnation == first)
            before = router.node("left")
            node.kill()
            await until(lambda: before.state is NodeState.FAILED)
            await until(lambda: before.state is NodeState.GONE)
            assert urls(router) == {}
        async with a_node(server.url, "--advertise", "127.0.0.1:1") as node:
            await until(lambda: "left" in urls(router))
            assert router.node("left").address == "127.0.0.1:1"
        await until(lambda: urls(router) == {})


async def test_a_node_that_restarts_before_it_is_missed_is_known_to_be_another(
    server: RedisServer,
) -> None:
    async with a_router(server.url) as router:
        async with a_node(server.url) as node:
            await until(lambda: "left" in urls(router))
            node.kill()
        async with a_node(server.url) as node:
            second = await node.incarnation()
            # In between there is none for a moment, and for longer when this machine is slow.
            await until(lambda: second in {node.incarnation for node in router.nodes()})
            assert router.node("left").address == node.address


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--announce", "http://h"], "--announce is no URL of a Redis, expected redis://HOST:PORT"),
        (
            ["--announce", "redis://h", "--engine-url", "https://h"],
            "--engine-url: 'https://h': engines are reached without TLS, expected http://HOST:PORT",
        ),
        (
            ["--announce", "redis://h", "--advertise", "h"],
            "--advertise: malformed address 'h': expected HOST:PORT or [IPV6]:PORT",
        ),
        (
            ["--announce", "redis://h", "--listen", "0.0.0.0:1"],
            "--advertise is '', expected an address that routers reach: '0.0.0.0:1' is none",
        ),
    ],
)
def test_an_announcement_nobody_could_use_is_refused(options: list[str], said: str) -> None:
    done = run("node", *options)
    assert done.returncode == 2
    assert f"error: {said}" in done.stderr
