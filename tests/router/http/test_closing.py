"""A proxy that is to end lets what is under way end first."""

from __future__ import annotations

import asyncio
import socket

import pytest
from prometheus_client import CollectorRegistry

from router.http.measurements import Measurements
from router.status import Status
from tests.router.http.engines import (
    STREAM_END,
    STREAM_HEAD,
    answers,
    chunk,
    hangs,
    running_engine,
    waits_for,
)
from tests.router.http.eventually import eventually
from tests.router.http.proxies import Client, get, post, running_proxy


async def _open(port: int) -> Client:
    return Client(*await asyncio.open_connection("127.0.0.1", port))


async def test_a_stream_under_way_ends_whole_and_idle_connections_at_once() -> None:
    go_on = asyncio.Event()
    async with running_engine() as engine:
        engine.next_ones = [
            waits_for(go_on, answers(chunk(b"data: 2\n\n") + STREAM_END), STREAM_HEAD)
        ]
        running = running_proxy([engine])
        proxy = await running.__aenter__()
        idle, busy = await _open(proxy.port), await _open(proxy.port)
        await idle.ask(get("/health"))
        busy.send(post())
        await busy.head()
        closing = asyncio.ensure_future(running.__aexit__(None, None, None))
        assert await idle.is_closed()
        assert not closing.done()
        go_on.set()
        assert await busy.chunk() == b"data: 2\n\n"
        assert await busy.chunk() == b""
        assert await busy.is_closed()
        await closing
        idle.close()
        busy.close()


async def test_requests_that_are_there_when_the_proxy_ends_are_served() -> None:
    async with running_engine() as engine:
        running = running_proxy([engine])
        proxy = await running.__aenter__()
        clients = [await _open(proxy.port) for _ in range(5)]
        for client in clients:
            await client.ask(get("/health"))
        for client in clients:
            client.send(post())
        await running.__aexit__(None, None, None)
        for client in clients:
            got = await client.answer()
            assert (got.status, got.headers["connection"]) == (200, "close")
            client.close()


def _first_line(client: socket.socket) -> bytes:
    with client, client.makefile("rb") as answer:
        return answer.readline()


async def test_who_is_connected_but_not_yet_let_in_when_the_proxy_ends_is_served() -> None:
    async with running_engine() as engine:
        running = running_proxy([engine])
        proxy = await running.__aenter__()
        # The loop has no turn before the end: it is the system that connects them.
        clients = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(20)]
        for client in clients:
            client.sendall(post())
        await running.__aexit__(None, None, None)
        assert [_first_line(client) for client in clients] == [b"HTTP/1.1 200 OK\r\n"] * 20


async def test_an_answer_given_while_the_proxy_ends_says_so() -> None:
    go_on = asyncio.Event()
    async with running_engine() as engine:
        engine.next_ones = [waits_for(go_on, engine.otherwise)]
        running = running_proxy([engine])
        proxy = await running.__aenter__()
        idle, client = await _open(proxy.port), await _open(proxy.port)
        await idle.ask(get("/health"))
        client.send(post())
        await eventually(lambda: len(engine.received) == 1)
        closing = asyncio.ensure_future(running.__aexit__(None, None, None))
        assert await idle.is_closed()  # so it is about to end
        go_on.set()
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (200, "close")
        await closing
        idle.close()
        client.close()


async def test_what_does_not_end_is_cut_off_after_the_grace() -> None:
    registry = CollectorRegistry()
    async with running_engine() as engine:
        engine.next_ones = [hangs(STREAM_HEAD, chunk(b"data: 1\n\n"))]
        async with running_proxy([engine], grace_s=0.1, registry=registry) as proxy:
            client = await _open(proxy.port)
            client.send(post())
            await client.head()
            assert await client.chunk() == b"data: 1\n\n"
            # It takes its counts along.
            [measurements] = registry._collector_to_names
            assert isinstance(measurements, Measurements)
        assert b"the router ends" in await client.chunk()
        assert await client.is_closed()
        await proxy.settles()
        assert (measurements.cut, measurements.clients_gone) == (1, 0)
        assert proxy.node("a").failures == 0
        await eventually(lambda: not engine.open_connections)
        client.close()


async def test_who_waits_for_the_router_itself_when_the_grace_is_over_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = asyncio.Event()

    async def never(self: Status) -> dict[str, object]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(Status, "nodes", never)
    async with running_engine() as engine:
        async with running_proxy([engine], grace_s=0.1) as proxy:
            client = await _open(proxy.port)
            client.send(get("/nodes"))
            await asked.wait()
        got = await client.answer()
        assert (got.status, got.error["message"]) == (503, "the router ends")
        assert await client.is_closed()
        client.close()


async def test_what_is_cut_off_is_no_whole_answer_to_a_client_of_http_1_0() -> None:
    async with running_engine() as engine:
        engine.next_ones = [hangs(STREAM_HEAD, chunk(b"data: 1\n\n"))]
        async with running_proxy([engine], grace_s=0.1) as proxy:
            client = await _open(proxy.port)
            client.send(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
            await client.head()
        with pytest.raises(ConnectionResetError):
            await client.reader.read()
        client.close()


async def test_who_waits_for_an_answer_that_has_not_begun_is_told() -> None:
    async with running_engine() as engine:
        engine.next_ones = [hangs()]
        async with running_proxy([engine], grace_s=0.1) as proxy:
            client = await _open(proxy.port)
            client.send(post())
            await eventually(lambda: len(engine.received) == 1)
        got = await client.answer()
        assert (got.status, got.headers["connection"]) == (503, "close")
        assert got.error["message"] == "the router ends"
        assert got.headers["x-prefix-cache-node"] == "a"
        assert got.headers["x-prefix-cache-reason"] == "new"
        assert await client.is_closed()
        assert proxy.node("a").failures == 0
        await proxy.settles()
        client.close()


async def test_requests_sent_ahead_are_answered_before_the_end() -> None:
    async with running_engine() as engine:
        running = running_proxy([engine])
        proxy = await running.__aenter__()
        client = await _open(proxy.port)
        client.send(get("/health") * 3)
        await client.answer()
        await running.__aexit__(None, None, None)
        assert (await client.answer()).status == 200
        client.close()
