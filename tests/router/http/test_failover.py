"""A node that fails before its first byte is left for another; the client notices nothing."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile

import pytest

from prefix_cache.client import NodeState
from tests.router.http.engines import (
    Behaviour,
    Engine,
    answers,
    chat_answer,
    closes,
    hangs,
    resets,
    running_engine,
    waits_for,
    whole,
)
from tests.router.http.eventually import eventually
from tests.router.http.proxies import (
    chat_body,
    client_of,
    is_failed,
    post,
    proxy_and_engines,
    running_proxy,
)

FAILURES = {
    "closes": closes(),
    "resets": resets(),
    "closes within its head": closes(b"HTTP/1.1 200 OK\r\nContent-"),
    "is no HTTP": answers(b"SSH-2.0-OpenSSH_9.6\r\n"),
    "says two lengths": answers(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n"
    ),
    "hangs": hangs(),
}
UNAVAILABLE = {
    "answers 502": answers(whole(b"{}", "502 Bad Gateway")),
    "answers 503": answers(whole(b"{}", "503 Service Unavailable")),
    "answers 504": answers(whole(b"{}", "504 Gateway Timeout")),
    "answers 503 and hangs": hangs(whole(b"{}", "503 x").replace(b"{}", b"{")),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_the_request_goes_to_another_node_as_it_was(name: str) -> None:
    fields = b"X-Request-ID: r1\r\nAuthorization: Bearer k\r\nX-Session-ID: s1\r\n"
    async with (
        proxy_and_engines(2, first_byte_timeout_s=0.3) as (proxy, engines),
        client_of(proxy) as client,
    ):
        home = (await client.ask(post(fields=fields))).headers["x-prefix-cache-node"]
        bad, good = engines if home == "a" else reversed(engines)
        await _forget_connections(bad)
        bad.next_ones = [FAILURES[name]]
        got = await client.ask(post(fields=fields))
        assert got.status == 200
        assert got.headers["x-prefix-cache-node"] != home
        assert got.headers["x-prefix-cache-reason"] == "moved"
        assert bad.bodies[-1] == good.bodies[-1] == chat_body()
        for engine in (bad, good):
            assert b"\r\nx-request-id: r1\r\n" in engine.heads[-1]
            assert b"\r\nauthorization: Bearer k\r\n" in engine.heads[-1]
            assert b"\r\nx-session-id: s1\r\n" in engine.heads[-1]
        assert is_failed(proxy, home)
        await proxy.settles()
        # It is not tried on users again, however often they come.
        for _ in range(3):
            assert (await client.ask(post())).status == 200
        assert len(bad.received) == 2


@pytest.mark.parametrize("name", UNAVAILABLE)
async def test_a_node_that_says_it_cannot_is_passed_over_and_not_taken_out(name: str) -> None:
    """One request that no engine likes must not cost a healthy fleet its nodes."""
    async with proxy_and_engines(2) as (proxy, engines), client_of(proxy) as client:
        home = (await client.ask(post())).headers["x-prefix-cache-node"]
        busy, good = engines if home == "a" else reversed(engines)
        busy.next_ones = [UNAVAILABLE[name]]
        got = await client.ask(post())
        assert got.status == 200
        assert got.headers["x-prefix-cache-node"] != home
        assert (len(busy.received), len(good.received)) == (2, 1)
        assert not is_failed(proxy, home)
        assert proxy.node(home).failures == 0
        await proxy.settles()


async def test_when_every_node_says_it_cannot_the_client_is_told_and_none_is_taken_out() -> None:
    async with proxy_and_engines(3) as (proxy, engines), client_of(proxy) as client:
        for engine in engines:
            engine.otherwise = answers(whole(b"{}", "503 x", b"Retry-After: 9\r\n"))
        got = await client.ask(post())
        assert (got.status, got.headers["retry-after"]) == (503, "9")
        assert got.error["code"] == "node_unavailable"
        assert [len(engine.received) for engine in engines] == [1, 1, 1]
        assert [node.state for node in proxy.dispatcher.nodes()] == [NodeState.READY] * 3
        await proxy.settles()


async def _forget_connections(engine: Engine) -> None:
    """Close those that are kept: the next request comes by a new one."""
    for transport in engine.open_connections:
        transport.close()
    await eventually(lambda: not engine.open_connections)
    await asyncio.sleep(0.01)


async def test_a_node_that_refuses_connections_is_left() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refusing = Engine(f"http://127.0.0.1:{unused.getsockname()[1]}")
        async with (
            running_engine() as engine,
            running_proxy([refusing, engine]) as proxy,
            client_of(proxy) as client,
        ):
            for i in range(4):
                got = await client.ask(post(chat_body(f"conversation {i}")))
                assert (got.status, got.headers["x-prefix-cache-node"]) == (200, "b")
            assert is_failed(proxy, "a")
            assert proxy.node("a").failures == 1
            await proxy.settles()


async def test_without_a_socket_left_the_router_says_so_and_blames_no_node() -> None:
    async with proxy_and_engines(2) as (proxy, engines), client_of(proxy) as client:
        with no_files_left():
            got = await client.ask(post())
        assert (got.status, got.headers["retry-after"]) == (503, "1")
        assert got.error["code"] == "router_overloaded"
        assert got.headers["x-prefix-cache-node"] == "a"
        assert [node.failures for node in proxy.dispatcher.nodes()] == [0, 0]
        await proxy.settles()
        assert (await client.ask(post())).status == 200
        assert [len(engine.received) for engine in engines].count(1) == 1


@contextmanager
def no_files_left() -> Iterator[None]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with TemporaryFile() as last:
        resource.setrlimit(resource.RLIMIT_NOFILE, (last.fileno() + 1, limits[1]))
        taken = []
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.dup(last.fileno()))
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for number in taken:
                os.close(number)


async def test_a_node_that_takes_no_connection_in_time_is_left() -> None:
    """Its queue of connections is full: what comes is neither taken nor refused."""
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        silent = Engine(f"http://127.0.0.1:{full.getsockname()[1]}")
        async with (
            running_proxy([silent], connect_timeout_s=0.1) as proxy,
            client_of(proxy) as client,
        ):
            got = await client.ask(post())
            assert got.status == 504
            assert "no connection within 0.1 s" in got.error["message"]
            assert is_failed(proxy, "a")
            await proxy.settles()


async def test_without_another_node_the_client_is_told() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes()]
        got = await client.ask(post())
        assert got.status == 502
        assert got.error["code"] == "node_failed"
        assert got.headers["x-prefix-cache-node"] == "a"
        assert got.headers["x-prefix-cache-reason"] == "new"
        got = await client.ask(post())
        assert (got.status, got.headers["retry-after"]) == (503, "1")
        assert got.error["code"] == "no_node_available"
        assert "a is FAILED" in got.error["message"]
        assert got.headers["x-prefix-cache-node"] == "-"
        assert got.headers["x-prefix-cache-reason"] == "no_node_available"
        assert len(engine.received) == 1
        await proxy.settles()


@pytest.mark.parametrize(
    ("behaviour", "status", "retry_after"),
    [
        (answers(whole(b"{}", "502 x")), 502, None),
        (answers(whole(b"{}", "503 x")), 503, "1"),
        (answers(whole(b"{}", "503 x", b"Retry-After: 9\r\n")), 503, "9"),
        (answers(whole(b"{}", "504 x", b"Retry-After: 8\r\n")), 504, "8"),
        (hangs(), 504, None),
        (answers(b"nonsense"), 502, None),
    ],
)
async def test_the_last_failure_is_what_the_client_is_told(
    behaviour: Behaviour, status: int, retry_after: str | None
) -> None:
    async with (
        proxy_and_engines(1, first_byte_timeout_s=0.1) as (proxy, [engine]),
        client_of(proxy) as client,
    ):
        engine.next_ones = [behaviour]
        got = await client.ask(post())
        assert (got.status, got.headers.get("retry-after")) == (status, retry_after)
        await proxy.settles()


async def test_no_more_nodes_are_tried_than_configured() -> None:
    async with proxy_and_engines(4, attempts=3) as (proxy, engines), client_of(proxy) as client:
        for engine in engines:
            engine.otherwise = closes()
        assert (await client.ask(post())).status == 502
        assert sum(len(engine.received) for engine in engines) == 3
        assert max(len(engine.received) for engine in engines) == 1
        await proxy.settles()


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 429, 500, 501])
async def test_what_is_no_failure_of_the_node_is_passed_on(status: int) -> None:
    async with proxy_and_engines(2) as (proxy, engines), client_of(proxy) as client:
        for engine in engines:
            engine.otherwise = answers(whole(b'{"no": 1}', f"{status} x", b"Retry-After: 7\r\n"))
        for _ in range(20):
            got = await client.ask(post())
            assert (got.status, got.body) == (status, b'{"no": 1}')
            assert got.headers["retry-after"] == "7"
        assert [node.state for node in proxy.dispatcher.nodes()] == [NodeState.READY] * 2
        assert len(proxy.dispatcher.conversations) == 0
        for engine in engines:
            engine.otherwise = answers(chat_answer())
        assert (await client.ask(post())).status == 200
        await proxy.settles()


async def test_a_connection_that_the_engine_gave_up_is_no_failure() -> None:
    """It closes a kept connection as the next request is on its way; nothing of it was served."""
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        assert (await client.ask(post())).status == 200
        engine.next_ones = [closes()]
        assert (await client.ask(post())).status == 200
        assert engine.connections == 2
        assert len(engine.received) == 3
        assert proxy.node("a").failures == 0
        # A new connection that breaks is a failure.
        engine.next_ones = [closes(), closes()]
        assert (await client.ask(post())).status == 502
        assert is_failed(proxy, "a")
        await proxy.settles()


async def test_an_engine_that_closes_later_has_failed_and_does_not_get_the_request_twice() -> None:
    """It had the request for a while: what broke it there would break it again."""

    async def dies(engine: asyncio.Transport) -> None:
        await asyncio.sleep(0.15)
        engine.close()

    async with proxy_and_engines(2) as (proxy, engines), client_of(proxy) as client:
        home = (await client.ask(post())).headers["x-prefix-cache-node"]
        dying, other = engines if home == "a" else reversed(engines)
        dying.next_ones = [dies]
        got = await client.ask(post())
        assert (got.status, got.headers["x-prefix-cache-node"] != home) == (200, True)
        assert (len(dying.received), len(other.received)) == (2, 1)
        assert is_failed(proxy, home)
        await proxy.settles()


async def test_idle_connections_that_an_engine_closes_are_forgotten() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        assert (await client.ask(post())).status == 200
        await _forget_connections(engine)
        assert (await client.ask(post())).status == 200
        assert engine.connections == 2
        assert len(engine.received) == 2


async def test_a_node_that_talks_without_being_asked_loses_its_connection() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(chat_answer() + chat_answer(prompt_tokens=99))]
        assert (await client.ask(post())).status == 200
        assert (await client.ask(post())).body == chat_answer().partition(b"\r\n\r\n")[2]
        assert engine.connections == 2
        engine.open_connections[0].write(chat_answer(prompt_tokens=98))
        await eventually(lambda: not engine.open_connections)
        assert (await client.ask(post())).body == chat_answer().partition(b"\r\n\r\n")[2]
        await proxy.settles()


async def test_load_is_counted_while_a_request_is_under_way() -> None:
    go_on = asyncio.Event()
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [waits_for(go_on, answers(chat_answer()))]
        client.send(post())
        await eventually(lambda: len(engine.received) == 1)
        in_flight, tokens, queued, decoding = proxy.load["a"]
        assert (in_flight, decoding) == (1, 0)
        assert tokens == queued > 0
        go_on.set()
        await client.answer()
        await proxy.settles()


async def test_a_node_of_which_only_the_cache_is_known_gets_no_request() -> None:
    async with (
        running_engine() as engine,
        running_proxy([Engine(), engine]) as proxy,
        client_of(proxy) as client,
    ):
        for i in range(5):
            got = await client.ask(post(chat_body(f"conversation {i}")))
            assert got.headers["x-prefix-cache-node"] == "b"
        assert proxy.node("a").state is NodeState.READY
        await proxy.settles()


async def test_a_node_that_closes_connections_as_they_are_made_is_left() -> None:
    async with (
        running_engine() as engine,
        running_engine() as slamming,
        running_proxy([slamming, engine]) as proxy,
        client_of(proxy) as client,
    ):
        slamming.takes_connections = False
        for i in range(4):
            got = await client.ask(post(chat_body(f"conversation {i}")))
            assert (got.status, got.headers["x-prefix-cache-node"]) == (200, "b")
        assert is_failed(proxy, "a")
        await proxy.settles()
