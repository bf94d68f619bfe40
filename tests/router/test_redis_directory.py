"""Routers that share pins through a real Redis."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from prefix_cache.client import RouteReason
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.conversations import Pin
from router.dispatcher import Dispatcher
from router.nodes import Home
from router.redis_directory import RedisDirectory, redis_directory
from router.turn import ConversationKey, Prompt, Turn
from tests.redis_servers import RedisServer, redis_cluster, redis_server

DEADLINE_S = 20.0
NODES = tuple(NodeSpec(name, f"{name}:1") for name in "abcdefgh")
CHAT = ConversationKey("tenant", "chat")
PIN = Pin(Home("a", 7), 100, 0.0, 0.0)


@pytest.fixture(autouse=True)
def _probes_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("router.redis_directory._PROBE_INTERVAL_S", 0.05)
    monkeypatch.setattr("router.redis_directory._LAST_BACKOFF_S", 0.1)


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[tuple[RedisServer, ...]]:
    with redis_cluster() as servers:
        yield servers


def config(url: str, wait_s: float = 0.5) -> RouterConfig:
    return RouterConfig(pools=(PoolConfig(nodes=NODES),), redis=url, redis_wait_s=wait_s)


@asynccontextmanager
async def directory(
    url: str, wait_s: float = 0.5, known: dict[ConversationKey, Pin] | None = None
) -> AsyncIterator[RedisDirectory]:
    async with redis_directory(config(url, wait_s), (known or {}).items) as opened:
        yield opened


class Router:
    """One replica: what its HTTP part does with dispatcher and directory for each turn."""

    def __init__(self, dispatcher: Dispatcher, directory: RedisDirectory) -> None:
        self.dispatcher = dispatcher
        self.directory = directory

    async def turn(self, key: ConversationKey) -> tuple[str, RouteReason]:
        if (pin := await self.directory.find_pin(key)) is not None:
            self.dispatcher.learn_pin(key, pin)
        route = self.dispatcher.route(Turn(key, Prompt(100)))
        self.dispatcher.accepted(route)
        self.dispatcher.served(route, cached_tokens=0)
        return route.node.name, route.decision.reason


@asynccontextmanager
async def replica(url: str) -> AsyncIterator[Router]:
    settings = config(url)
    pins: dict[ConversationKey, Pin] = {}

    def on_pin(key: ConversationKey, pin: Pin) -> None:
        pins[key] = pin
        shared.put_pin(key, pin)

    dispatcher = Dispatcher(settings)
    dispatcher.on_pin = on_pin
    for node in dispatcher.nodes():
        dispatcher.node_answered(node, 1)
    async with redis_directory(settings, pins.items) as shared:
        yield Router(dispatcher, shared)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


async def find(shared: RedisDirectory, key: ConversationKey) -> Home:
    """The pin that is there sooner or later."""
    deadline = time.monotonic() + DEADLINE_S
    while (pin := await shared.find_pin(key)) is None:
        assert time.monotonic() < deadline, "the pin is not there"
        await asyncio.sleep(0.005)
    return pin.home


async def test_what_one_router_puts_another_finds(server: RedisServer) -> None:
    async with directory(server.url) as one, directory(server.url) as other:
        assert await other.find_pin(CHAT) is None

        one.put_pin(CHAT, PIN)

        assert (await one.find_pin(CHAT)) == PIN
        await find(other, CHAT)
        found = await other.find_pin(CHAT)
        assert found is not None
        assert (found.home, found.committed_tokens) == (Home("a", 7), 100)
        assert one.counts == other.counts


async def test_keys_that_read_alike_are_different_conversations(server: RedisServer) -> None:
    async with directory(server.url) as shared:
        shared.put_pin(ConversationKey("ab", "c"), PIN)
        await find(shared, ConversationKey("ab", "c"))

        assert await shared.find_pin(ConversationKey("a", "bc")) is None
        assert await shared.find_pin(ConversationKey("", "abc")) is None


async def test_a_pin_lives_as_long_as_its_ttl_says(server: RedisServer) -> None:
    async with directory(server.url) as shared:
        shared.put_pin(CHAT, PIN)
    with server.client() as client:
        (key,) = client.keys("prefix-cache:pin:*")
        assert 3590 < client.ttl(key) <= 3600


@pytest.mark.parametrize("value", [b"", b"\xc1", b"\x93\x01\x02\x03", b"text"])
async def test_a_value_of_somebody_else_is_no_pin(server: RedisServer, value: bytes) -> None:
    async with directory(server.url) as shared:
        shared.put_pin(CHAT, PIN)
    async with directory(server.url) as shared:
        assert await shared.find_pin(CHAT) is not None
        with server.client() as client:
            (key,) = client.keys("prefix-cache:pin:*")
            client.set(key, value)
            assert await shared.find_pin(CHAT) is None
            client.delete(key)
            client.rpush(key, "a")  # no string at all
        assert await shared.find_pin(CHAT) is None
        assert shared.is_available
        assert shared.counts.errors == 1


async def test_a_redis_that_is_full_is_still_asked(server: RedisServer) -> None:
    async with directory(server.url) as shared:
        shared.put_pin(CHAT, PIN)
    with server.client() as client:
        client.config_set("maxmemory", 1)
    async with directory(server.url) as shared:
        shared.put_pin(ConversationKey("", "no room"), PIN)
        await until(lambda: shared.counts.errors == 1)
        assert shared.is_available
        assert await find(shared, CHAT) == Home("a", 7)


async def test_replicas_send_a_conversation_to_one_node_before_and_after_one_is_gone(
    server: RedisServer,
) -> None:
    chats = [ConversationKey("", f"chat-{number}") for number in range(20)]
    async with AsyncExitStack() as stack:
        left = await stack.enter_async_context(replica(server.url))
        homes: dict[ConversationKey, set[str]] = {}
        async with replica(server.url) as right:
            for number in range(6):
                router = (left, right)[number % 2]
                for chat in chats:
                    node, reason = await router.turn(chat)
                    homes.setdefault(chat, set()).add(node)
                    assert reason is (RouteReason.PINNED if number else RouteReason.NEW)
        for chat in chats:
            node, reason = await left.turn(chat)
            assert {node} == homes[chat]
            assert reason is RouteReason.PINNED


async def test_a_new_replica_goes_on_where_another_ended(server: RedisServer) -> None:
    async with replica(server.url) as old:
        home, _ = await old.turn(CHAT)
    async with replica(server.url) as new:
        assert await new.turn(CHAT) == (home, RouteReason.PINNED)


async def test_a_turn_takes_one_command_and_a_thousand_at_once_few_round_trips(
    server: RedisServer,
) -> None:
    keys = [ConversationKey("", str(number)) for number in range(1000)]
    calls = server.calls()
    reads = server.info("stats")["total_reads_processed"]
    async with directory(server.url, wait_s=DEADLINE_S) as shared:
        await asyncio.gather(*map(shared.find_pin, keys))
        for key in keys:
            shared.put_pin(key, PIN)
    reads = server.info("stats")["total_reads_processed"] - reads
    assert server.calls()["set"] - calls.get("set", 0) == 1000
    assert 1000 <= server.calls()["get"] - calls.get("get", 0) <= 1020
    assert reads <= 50  # a large pipeline is read in pieces


async def test_without_redis_turns_do_not_wait(server: RedisServer) -> None:
    server.kill()
    async with directory(server.url, wait_s=60.0) as shared:
        assert not shared.is_available
        assert await shared.find_pin(CHAT) is None
        assert shared.counts.timeouts == 0


async def test_a_redis_that_hangs_costs_one_wait_and_then_none(server: RedisServer) -> None:
    async with directory(server.url, wait_s=0.01) as shared:
        await until(lambda: shared.is_available)
        with server.frozen():
            for _ in range(100):
                assert await shared.find_pin(CHAT) is None
            assert shared.counts.timeouts == 100
            await until(lambda: not shared.is_available)
            assert shared.counts.errors > 0
        await until(lambda: shared.is_available)


async def test_what_was_put_while_redis_was_away_is_written_when_it_is_back(
    server: RedisServer,
) -> None:
    async with replica(server.url) as one, replica(server.url) as other:
        server.kill()
        await until(lambda: not (one.directory.is_available or other.directory.is_available))
        home, _ = await one.turn(CHAT)

        server.start()

        await until(lambda: one.directory.is_available and other.directory.is_available)
        assert (await find(other.directory, CHAT)).node == home


async def test_a_pin_that_was_under_way_when_redis_died_is_written_when_it_is_back(
    server: RedisServer,
) -> None:
    async with replica(server.url) as one, replica(server.url) as other:
        with server.frozen():
            home, _ = await one.turn(CHAT)
            await until(lambda: one.directory._sent_at is not None and not one.directory._puts)
            server.kill()
        server.start()

        assert (await find(other.directory, CHAT)).node == home


async def test_a_redis_that_comes_back_empty_gets_the_pins_that_routers_know(
    server: RedisServer,
) -> None:
    """Without a turn of these conversations, more of them than one round trip carries."""
    known = {ConversationKey("", str(number)): PIN for number in range(2000)}
    async with directory(server.url, known=known) as one, directory(server.url) as other:
        await until(lambda: one.is_available)
        server.kill()
        server.start()
        await until(lambda: one.counts.errors > 0 and one.is_available)
        for key in known:
            assert await find(other, key) == Home("a", 7)


@pytest.mark.parametrize("cut_off_writes_first", [True, False])
@pytest.mark.parametrize("server_kind", ["one", "cluster"])
async def test_what_was_written_last_is_restored_whoever_restores_first(
    request: pytest.FixtureRequest, server_kind: str, cut_off_writes_first: bool
) -> None:
    """Redis came back empty, and one replica knows nothing of where the other has moved chats."""
    if server_kind == "one":
        url = request.getfixturevalue("server").url
    else:
        url = request.getfixturevalue("cluster")[0].url.replace("redis:", "redis+cluster:")
    chats = [ConversationKey(f"{cut_off_writes_first}", str(number)) for number in range(1_000)]
    old = dict.fromkeys(chats, Pin(Home("a", 7), 100, 0.0, 1000.0))
    new = dict.fromkeys(chats, Pin(Home("b", 8), 50, 0.0, 1000.5))
    for known in (old, new) if cut_off_writes_first else (new, old):
        async with directory(url, known=known) as restoring:
            pass  # it ends once it has restored them all
    async with directory(url, wait_s=DEADLINE_S) as reader:
        found = await asyncio.gather(*map(reader.find_pin, chats))
        assert {pin and pin.home for pin in found} == {Home("b", 8)}
        assert reader.counts == restoring.counts


async def test_a_pin_in_redis_is_later_than_what_a_router_remembers(server: RedisServer) -> None:
    """A router that was cut off does not bring back what has moved since."""
    later = Pin(Home("b", 8), 200, 0.0, 1.0)
    async with directory(server.url) as one:
        one.put_pin(CHAT, later)
    async with directory(server.url, known={CHAT: PIN}) as cut_off:
        cut_off.put_pin(ConversationKey("", "last"), PIN)
        await find(cut_off, ConversationKey("", "last"))
        assert await find(cut_off, CHAT) == Home("b", 8)


async def test_pins_are_not_kept_without_bound_while_redis_hangs(server: RedisServer) -> None:
    async with directory(server.url) as shared:
        with server.frozen():
            for number in range(66_000):
                shared.put_pin(ConversationKey("", str(number)), PIN)
            assert shared.counts.dropped_puts == 66_000 - 65_536
            server.kill()


async def test_redis_killed_and_started_again_under_load_fails_no_turn(
    server: RedisServer,
) -> None:
    chats = [ConversationKey("", f"chat-{number}") for number in range(50)]
    async with replica(server.url) as left, replica(server.url) as right:
        homes = {chat: (await left.turn(chat))[0] for chat in chats}
        rounds = 0
        stop = asyncio.Event()

        async def load() -> None:
            nonlocal rounds
            while not stop.is_set():
                for chat in chats:
                    assert await left.turn(chat) == (homes[chat], RouteReason.PINNED)
                rounds += 1
                await asyncio.sleep(0)

        async def more(count: int) -> None:
            goal = rounds + count
            await until(lambda: rounds >= goal)

        task = asyncio.create_task(load())
        await more(2)
        server.kill()
        await until(lambda: not left.directory.is_available)
        await more(2)
        server.start()
        await until(lambda: left.directory.is_available)
        await more(2)
        stop.set()
        await task
        # Pins have come back: the other router, which never saw these chats, knows their homes.
        await until(lambda: right.directory.is_available)
        for chat in chats:
            await find(right.directory, chat)
            assert await right.turn(chat) == (homes[chat], RouteReason.PINNED)


async def test_a_cluster_is_as_good_as_one_server(cluster: tuple[RedisServer, ...]) -> None:
    url = cluster[0].url.replace("redis:", "redis+cluster:")
    chats = [ConversationKey("", f"chat-{number}") for number in range(50)]
    async with replica(url) as left, replica(url) as right:
        homes = {chat: (await left.turn(chat))[0] for chat in chats}
        for chat in chats:
            await find(right.directory, chat)
            assert await right.turn(chat) == (homes[chat], RouteReason.PINNED)
        assert left.directory.counts.errors == right.directory.counts.errors == 0
    for server in cluster:
        with server.client() as client:
            assert client.dbsize() > 0


async def test_a_cluster_that_lost_a_master_is_away_until_it_is_whole_again(
    cluster: tuple[RedisServer, ...],
) -> None:
    url = cluster[0].url.replace("redis:", "redis+cluster:")
    chats = [ConversationKey("", f"chat-{number}") for number in range(50)]
    async with replica(url) as left, replica(url) as right:
        homes = {chat: (await left.turn(chat))[0] for chat in chats}
        cluster[1].kill()
        await until(lambda: not left.directory.is_available)
        for chat in chats:
            assert await left.turn(chat) == (homes[chat], RouteReason.PINNED)
        cluster[1].start()
        await until(lambda: left.directory.is_available and right.directory.is_available)
        for chat in chats:
            assert (await find(right.directory, chat)).node == homes[chat]
