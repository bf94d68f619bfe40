"""Connections and bodies are held for as long as they are of use, and no longer."""

from __future__ import annotations

import asyncio
import gc
from typing import cast

import pytest
from prometheus_client import CollectorRegistry

from router.http import client_connection
from router.http.request_parser import Request
from tests.router.http.engines import (
    STREAM_HEAD,
    Engine,
    chat_answer,
    chunk,
    hangs,
    running_engine,
    waits_for,
)
from tests.router.http.eventually import eventually
from tests.router.http.proxies import (
    chat_body,
    client_of,
    get,
    post,
    proxy_and_engines,
    running_proxy,
)

CONNECTIONS = "prefix_cache_router_http_connections"


async def test_an_idle_client_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "_KEEP_ALIVE_S", 0.1)
    async with (
        proxy_and_engines(1) as (proxy, _),
        client_of(proxy) as silent,
        client_of(proxy) as served,
    ):
        assert (await served.ask(get("/health"))).status == 200
        assert await served.is_closed()
        assert await silent.is_closed()


async def test_a_client_that_was_refused_is_listened_to_for_a_while_and_then_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To close with unread bytes would be to take the answer back."""
    monkeypatch.setattr(client_connection, "_LINGER_S", 0.5)
    registry = CollectorRegistry()
    async with (
        running_engine() as engine,
        running_proxy([engine], registry=registry) as proxy,
        client_of(proxy) as client,
    ):
        client.send(b"nonsense\r\n\r\n")
        for _ in range(10):
            client.send(b"and more")
            await asyncio.sleep(0.01)
        assert registry.get_sample_value(CONNECTIONS) == 1
        assert (await client.answer()).status == 400
        # It does not close its side.
        await eventually(lambda: registry.get_sample_value(CONNECTIONS) == 0)


async def test_the_body_of_a_request_is_not_held_while_its_answer_comes() -> None:
    body = chat_body("held" * 25_000)

    def holders() -> int:
        return sum(type(each) is Request and each.body == body for each in gc.get_objects())

    go_on = asyncio.Event()
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [waits_for(go_on, hangs(STREAM_HEAD, chunk(b"data: 1\n\n")))]
        client.send(post(body))
        await eventually(lambda: len(engine.received) == 1)
        assert holders() == 1
        go_on.set()
        await client.head()
        await client.chunk()
        assert holders() == 0


class _AnswersEarly(asyncio.Protocol):
    """Answers as soon as it has seen a head; of what follows it reads nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._engine.connections += 1
        self._engine.open_connections.append(self._transport)

    def data_received(self, data: bytes) -> None:
        self._transport.pause_reading()
        self._transport.write(chat_answer())

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.open_connections.remove(self._transport)


async def test_a_connection_with_an_unsent_body_on_it_is_not_used_again() -> None:
    """The engine would take the next request for more of that body."""
    engine = Engine()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _AnswersEarly(engine), "127.0.0.1", 0)
    engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with running_proxy([engine]) as proxy, client_of(proxy) as client:
            assert (await client.ask(post(chat_body("x" * 20_000_000)))).status == 200
            assert (await client.ask(post())).status == 200
            assert engine.connections == 2
            await proxy.settles()
    finally:
        server.close()
        for transport in list(engine.open_connections):
            transport.abort()
        await eventually(lambda: not engine.open_connections)
