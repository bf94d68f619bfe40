"""Workers that tell each other their pins and their load, over real sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from prefix_cache.client import NodeState, RouteReason
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.dispatcher import Dispatcher
from router.turn import ConversationKey, Prompt, Turn
from router.workers.mailbox import Delivery, Mailbox, Seat
from router.workers.siblings import Siblings, sharing

DEADLINE_S = 20.0
CONFIG = RouterConfig(
    pools=(PoolConfig(nodes=tuple(NodeSpec(name, f"{name}:1") for name in "abcd")),)
)


class Worker:
    def __init__(self, dispatcher: Dispatcher, siblings: Siblings) -> None:
        self.dispatcher = dispatcher
        self.siblings = siblings

    def turn(self, key: ConversationKey) -> tuple[str, RouteReason]:
        route = self.dispatcher.route(Turn(key, Prompt(100)))
        self.dispatcher.accepted(route)
        self.dispatcher.served(route, cached_tokens=0)
        return route.node.name, route.decision.reason

    def knows(self, key: ConversationKey) -> bool:
        return self.dispatcher.conversations.get(key) is not None

    @property
    def drained(self) -> list[str]:
        nodes = self.dispatcher.nodes()
        return [node.name for node in nodes if node.state is NodeState.DRAINING]

    @property
    def in_flight(self) -> int:
        return sum(node.in_flight for node in self.dispatcher.nodes())


@asynccontextmanager
async def worker(folder: Path, index: int, count: int = 2) -> AsyncGenerator[Worker, None]:
    dispatcher = Dispatcher(CONFIG)
    for node in dispatcher.nodes():
        dispatcher.node_answered(node, 1)
    async with sharing(dispatcher, Seat(index, count, folder)) as siblings:
        yield Worker(dispatcher, siblings)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.001)


def chat(number: int) -> ConversationKey:
    return ConversationKey("tenant", f"chat-{number}")


async def test_turns_of_a_conversation_go_to_one_node_whichever_worker_they_land_on(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(worker(tmp_path, n, 3)) for n in range(3)]
        homes = {}
        for number in range(50):
            homes[chat(number)], reason = workers[number % 3].turn(chat(number))
            assert reason is RouteReason.NEW
        for key, home in homes.items():
            for each in workers:
                await until(lambda each=each, key=key: each.knows(key))  # type: ignore[misc]
                assert each.turn(key) == (home, RouteReason.PINNED)


async def test_keys_of_any_characters_and_length_arrive(tmp_path: Path) -> None:
    keys = [
        ConversationKey("", "\0"),
        ConversationKey("\N{SNOWMAN}", ""),
        *(ConversationKey("\N{GRINNING FACE}" * 512, f"{n:03}" * 170) for n in range(100)),
    ]
    async with worker(tmp_path, 0) as left, worker(tmp_path, 1) as right:
        for key in keys:
            left.turn(key)
        await until(lambda: all(map(right.knows, keys)))


async def test_pins_written_faster_than_they_are_read_all_arrive(tmp_path: Path) -> None:
    async with worker(tmp_path, 0) as left, worker(tmp_path, 1) as right:
        for number in range(20_000):
            left.turn(chat(number))
        assert not right.knows(chat(19_999))
        await until(lambda: len(right.dispatcher.conversations) == 20_000)
        assert left.siblings.dropped == 0


async def test_pins_wait_in_bounded_number_and_what_is_dropped_is_counted(tmp_path: Path) -> None:
    seat = Seat(1, 2, tmp_path)
    full = Mailbox(seat, lambda data: None)
    asyncio.get_running_loop().remove_reader(full._socket)  # it hangs
    async with worker(tmp_path, 0) as left:
        left.turn(chat(0))
        pin = left.dispatcher.conversations.get(chat(0))
        assert pin is not None
        await until(lambda: full_of_datagrams(left, b"\x92\x02\x00"))
        for number in range(70_000):
            left.siblings.put_pin(chat(number), pin)
        assert left.siblings.dropped == 70_000 - 65_536
    full.close()


def full_of_datagrams(sender: Worker, data: bytes) -> bool:
    return sender.siblings._mailbox.send(1, data) is Delivery.FULL


async def test_load_is_that_of_all_workers_and_comes_back_to_zero(tmp_path: Path) -> None:
    async with worker(tmp_path, 0) as left, worker(tmp_path, 1) as right:
        routes = [left.dispatcher.route(Turn(None, Prompt(100))) for _ in range(10)]
        own = right.dispatcher.route(Turn(None, Prompt(100)))
        await until(lambda: left.in_flight == right.in_flight == 11)
        for route in routes:
            left.dispatcher.not_served(route)
        await until(lambda: left.in_flight == right.in_flight == 1)
        right.dispatcher.not_served(own)
        await until(lambda: left.in_flight == right.in_flight == 0)


async def test_a_worker_that_starts_is_told_the_pins_there_are(tmp_path: Path) -> None:
    async with worker(tmp_path, 0) as left:
        homes = {chat(number): left.turn(chat(number))[0] for number in range(2_000)}
        async with worker(tmp_path, 1) as right:
            await until(lambda: len(right.dispatcher.conversations) == 2_000)
            assert {key: right.turn(key)[0] for key in homes} == homes


async def test_the_load_of_a_worker_that_died_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.workers.siblings._SILENCE_S", 0.5)
    async with worker(tmp_path, 0) as left:
        async with worker(tmp_path, 1) as right:
            right.dispatcher.route(Turn(None, Prompt(100)))
            await until(lambda: left.in_flight == 1)
        await until(lambda: left.in_flight == 0)


async def test_the_socket_that_a_killed_worker_left_behind_is_replaced(tmp_path: Path) -> None:
    killed = Mailbox(Seat(1, 2, tmp_path), lambda data: None)
    asyncio.get_running_loop().remove_reader(killed._socket)
    killed._socket.close()
    async with worker(tmp_path, 0) as left:
        left.turn(chat(1))  # nobody listens there
        async with worker(tmp_path, 1) as right:
            await until(lambda: right.knows(chat(1)))


async def test_a_node_that_one_worker_is_told_to_drain_is_drained_by_all(tmp_path: Path) -> None:
    async with worker(tmp_path, 0) as left:
        left.dispatcher.drain("b")
        async with worker(tmp_path, 1) as right:
            await until(lambda: right.drained == ["b"])
            left.dispatcher.drain("a")
            await until(lambda: right.drained == ["a", "b"])
        left.dispatcher.drain("b", drain=False)
        async with worker(tmp_path, 1) as right:
            await until(lambda: right.drained == left.drained == ["a"])


async def test_a_drain_that_was_lost_on_its_way_is_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("router.workers.siblings._TICKS_UNTIL_ALL", 20)
    async with worker(tmp_path, 0) as left, worker(tmp_path, 1) as right:
        right.turn(chat(1))
        await until(lambda: left.knows(chat(1)))  # so it has answered what the other asked first
        with monkeypatch.context() as patch:
            patch.setattr(left.siblings._mailbox, "send", lambda index, data: Delivery.FULL)
            left.dispatcher.drain("b")
            await until(lambda: bool(left.siblings._drains_told))
        await until(lambda: right.drained == ["b"])
