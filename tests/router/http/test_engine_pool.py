"""Connections are kept for a while, and no longer."""

from __future__ import annotations

import asyncio

import pytest

from router.http import engine_pool
from tests.router.http.engines import hangs
from tests.router.http.eventually import eventually
from tests.router.http.proxies import Proxy, client_of, post, proxy_and_engines


async def test_a_connection_that_nobody_uses_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_pool, "_IDLE_S", 0.05)
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        await client.ask(post())
        await eventually(lambda: not engine.open_connections)
        await client.ask(post())
        assert engine.connections == 2
        await eventually(lambda: not engine.open_connections)


async def test_a_connection_in_use_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_pool, "_IDLE_S", 0.01)
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        await client.ask(post())
        engine.next_ones = [hangs()]
        client.send(post())
        await eventually(lambda: len(engine.received) == 2)
        await asyncio.sleep(0.05)
        assert len(engine.open_connections) == 1


async def test_as_many_connections_are_kept_as_were_used_at_once() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]):
        for _ in range(3):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(8):
                    tasks.create_task(_ask(proxy))
        assert engine.connections <= 8
        assert len(engine.received) == 24
    await eventually(lambda: not engine.open_connections)


async def _ask(proxy: Proxy) -> None:
    async with client_of(proxy) as client:
        assert (await client.ask(post())).status == 200
