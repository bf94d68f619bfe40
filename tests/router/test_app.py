"""The whole router in one process: both faces over one dispatcher, and how it ends."""

from __future__ import annotations

import asyncio
import gc
import json
import resource
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from prefix_cache.client import AsyncRouterClient, NodeState, Outcome, RouteReason
from prefix_cache.errors import CannotListen
from prefix_cache.testing import EngineConfig, Faults, running_engine
from router import app
from router.app import running
from router.config import NodeSpec, PoolConfig, RouterConfig
from tests.cli.commands import first_line
from tests.cli.commands import running as running_command
from tests.prometheus import values
from tests.redis_servers import redis_server

DEADLINE_S = 20.0


def config_over(urls: list[str], **settings: Any) -> RouterConfig:
    nodes = tuple(NodeSpec(name, url=url) for name, url in zip("abcd", urls, strict=False))
    return RouterConfig(
        pools=(PoolConfig(nodes=nodes),),
        listen=("127.0.0.1:0",),
        http="127.0.0.1:0",
        **settings,
    )


class Face:
    """A router's proxy, spoken to by a client."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    async def ask(
        self, conversation: str, *said: str, stream: bool = False
    ) -> aiohttp.ClientResponse:
        """Send a turn of a conversation; return the answer, read to its end."""
        messages = [{"role": "user", "content": text} for text in said]
        async with self._session.post(
            "/v1/chat/completions",
            json={"model": "test", "messages": messages, "stream": stream},
            headers={"X-Session-ID": conversation},
        ) as answer:
            await answer.read()
        return answer

    async def get(self, path: str) -> Any:
        async with self._session.get(path) as answer:
            return await answer.json()

    async def metrics(self) -> dict[str, float]:
        async with self._session.get("/metrics") as answer:
            return values(await answer.text())


@asynccontextmanager
async def running_router(
    engines: list[str], **settings: Any
) -> AsyncIterator[tuple[Face, AsyncRouterClient]]:
    async with (
        running(config_over(engines, **settings)) as (grpc, url),
        aiohttp.ClientSession(url) as session,
        AsyncRouterClient(grpc) as client,
    ):
        yield Face(session), client


async def in_flight(client: AsyncRouterClient) -> list[int]:
    _, nodes = await client.list_nodes()
    return [node.in_flight for node in nodes]


async def test_both_faces_show_one_router() -> None:
    """A turn of the proxy can be asked about over gRPC; a node drained there is left here."""
    async with (
        running_engine() as left,
        running_engine() as right,
        running_router([left.url, right.url]) as (proxy, client),
    ):
        answer = await proxy.ask("chat", "Hello")
        home = answer.headers["x-prefix-cache-node"]

        explained = await client.explain_request(answer.headers["x-request-id"])
        by_http = await proxy.get(f"/explain?id={answer.headers['x-request-id']}")
        assert (explained.node, explained.reason) == (home, RouteReason.NEW)
        assert (by_http["node"], by_http["reason"]) == (home, "new")
        assert [each["node"] for each in by_http["candidates"]] == ["a", "b"]

        assert await client.drain(home) == 1
        moved = await proxy.ask("chat", "Hello", "again")
        assert moved.headers["x-prefix-cache-reason"] == "moved"
        assert moved.headers["x-prefix-cache-node"] != home
        _, nodes = await client.list_nodes()
        assert [(node.in_flight, node.turns, node.models) for node in nodes] == [
            (0, 1, ("test",)),
            (0, 1, ("test",)),
        ]


async def test_a_node_told_to_drain_is_left_by_all_replicas_and_by_one_that_restarts() -> None:
    with redis_server() as redis:
        async with running_engine() as left, running_engine() as right:
            engines = [left.url, right.url]
            async with (
                running_router(engines, redis=redis.url) as (_, told),
                running_router(engines, redis=redis.url) as (_, other),
            ):
                await told.drain("a")
                async with asyncio.timeout(DEADLINE_S):
                    while (drained := await in_state(other, NodeState.DRAINING)) != ["a"]:
                        assert drained == []
            async with running_router(engines, redis=redis.url) as (proxy, restarted):
                assert await in_state(restarted, NodeState.DRAINING) == ["a"]
                asked = [await proxy.ask(f"chat-{number}", "Hello") for number in range(5)]
                assert {answer.headers["x-prefix-cache-node"] for answer in asked} == {"b"}


async def in_state(client: AsyncRouterClient, state: NodeState) -> list[str]:
    _, nodes = await client.list_nodes()
    return [node.name for node in nodes if node.state is state]


async def test_a_wiped_engine_is_noticed_at_the_second_turn() -> None:
    """F093 on a real engine: what was promised and not delivered is counted, and then corrected."""
    async with running_engine() as engine, running_router([engine.url]) as (proxy, _):
        said = {f"chat-{number}": f"{number} " * 1_000 for number in range(20)}
        for conversation, text in said.items():
            await proxy.ask(conversation, text)
        for conversation, text in said.items():
            await proxy.ask(conversation, text, "And then?")
        sums = (await proxy.get("/nodes"))["sums"]
        assert sums["delivered"] > 20 * 2_000
        before = sums["not_delivered"]
        assert before < 20 * 32  # the engine's blocks are not the router's pieces

        engine.faults.set(Faults(wipe=True))
        for conversation, text in said.items():
            await proxy.ask(conversation, text, "And then?", "Go on.")
        last = {
            each["conversation"]: each["last_turns"][-1]
            for each in (await proxy.get("/conversations?limit=100"))["conversations"]
        }

    doubted, noticed, *corrected = (last[conversation] for conversation in said)
    for turn in (doubted, noticed):
        assert turn["promised"] > 1_900
        assert turn["delivered"] == 0
    assert [turn["promised"] for turn in corrected] == [0] * 18


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_load_rises_and_comes_back_on_every_way_in(stream: bool) -> None:
    """F095: 100 turns of one prefix by either face, that hang and are then answered."""
    async with (
        running_engine() as left,
        running_engine() as right,
        running_router([left.url, right.url]) as (proxy, client),
    ):
        for engine in (left, right):
            engine.faults.set(Faults(hang=True))
        asked = [
            asyncio.create_task(proxy.ask(f"chat-{number}", "Hello", stream=stream))
            for number in range(100)
        ]
        routes = [await client.route(f"other-{number}", 10) for number in range(100)]

        async with asyncio.timeout(DEADLINE_S):
            while sum(await in_flight(client)) < 200:
                assert not any(task.done() for task in asked)

        for engine in (left, right):
            engine.faults.set(Faults())
        answers = await asyncio.gather(*asked)
        for route in routes:
            await client.report(route.route_id, Outcome.OK)
        assert {answer.status for answer in answers} == {200}
        assert await in_flight(client) == [0, 0]


async def test_a_dead_home_is_tried_once_and_then_left_alone() -> None:
    """F099: the client sees one turn that moved, and no failure."""
    async with (
        running_engine() as left,
        running_engine() as right,
        running_router([left.url, right.url]) as (proxy, client),
    ):
        home = (await proxy.ask("chat", "Hello")).headers["x-prefix-cache-node"]
        engine = left if home == "a" else right
        engine.faults.set(Faults(refuse=True))

        first = await proxy.ask("chat", "Hello", "again")
        later = [await proxy.ask(f"chat-{number}", "Hello") for number in range(10)]

        assert (first.status, first.headers["x-prefix-cache-reason"]) == (200, "moved")
        assert {answer.status for answer in later} == {200}
        assert home not in {answer.headers["x-prefix-cache-node"] for answer in [first, *later]}
        assert (await proxy.metrics())["prefix_cache_router_retries_total"] == 1
        _, nodes = await client.list_nodes()
        assert {node.name: node.failures for node in nodes}[home] == 1


async def test_an_address_in_use_is_told_and_nothing_is_left_behind() -> None:
    before = asyncio.all_tasks()
    async with running_engine() as engine, running(config_over([engine.url])) as (_, url):
        place = urlsplit(url).netloc
        with pytest.raises(CannotListen, match=place):
            async with running(replace(config_over([engine.url]), http=place)):
                raise AssertionError("it listens there")
    assert asyncio.all_tasks() == before


async def test_a_router_that_ended_leaves_no_task_behind() -> None:
    async with running_engine() as engine:
        before = asyncio.all_tasks()
        for _ in range(3):
            async with running_router([engine.url, "http://127.0.0.1:1"]) as (proxy, _):
                await proxy.ask("chat", "Hello")
                assert len(asyncio.all_tasks()) > len(before)
        await asyncio.sleep(0)

        assert {task for task in asyncio.all_tasks() if "aiohttp" not in repr(task)} == before


async def test_sigterm_lets_a_stream_end_that_is_under_way() -> None:
    """No connection is taken any more, and the answer that had begun is whole."""
    slow = EngineConfig(decode_s_per_token=0.01)
    async with running_engine(slow) as engine:
        with running_command(
            *("router", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"),
            *("--node", f"a={engine.url}"),
        ) as process:
            line = await asyncio.to_thread(first_line, process)
            url = json.loads(line)["addresses"][-1]
            body = {
                "model": "test",
                "messages": [{"role": "user", "content": "Tell me all"}],
                "stream": True,
                "max_tokens": 100,
            }
            async with (
                aiohttp.ClientSession(url) as session,
                session.post("/v1/chat/completions", json=body) as answer,
            ):
                first = await answer.content.readline()
                process.send_signal(signal.SIGTERM)
                await asyncio.to_thread(refused, url)
                rest = (await answer.content.read()).decode()
            assert await asyncio.to_thread(process.wait, 30) == 0
            assert process.stderr is not None
            assert "Traceback" not in process.stderr.read()

    assert first.startswith(b"data: ")
    assert rest.rstrip().endswith("data: [DONE]")


def refused(url: str) -> None:
    """Return once no connection is taken at ``url``."""
    place = urlsplit(url)
    while True:
        connection = HTTPConnection(place.hostname or "", place.port, timeout=20)
        try:
            connection.connect()
        except ConnectionResetError:  # it came at the very end
            continue
        except ConnectionRefusedError:
            return
        finally:
            connection.close()


def test_a_router_takes_as_many_files_as_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    limits, thresholds = resource.getrlimit(resource.RLIMIT_NOFILE), gc.get_threshold()
    most = min(limits[1], 8192)
    monkeypatch.setattr(app, "running", None)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most // 2, limits[1]))
        with pytest.raises(TypeError):
            app.run_router(config_over([]), lambda _: None)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (limits[1], limits[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        gc.set_threshold(*thresholds)
