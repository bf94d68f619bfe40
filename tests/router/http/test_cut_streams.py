"""After its first byte an answer is never tried again, and never ends as if it were whole."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.router.http.engines import (
    STREAM_HEAD,
    Behaviour,
    answers,
    chunk,
    closes,
    hangs,
    resets,
)
from tests.router.http.proxies import (
    chat_body,
    client_of,
    is_failed,
    post,
    proxy_and_engines,
)

EVENT = b'data: {"n": 1}\n\n'
OLD = post().replace(b"HTTP/1.1", b"HTTP/1.0")


@pytest.mark.parametrize("ends", [closes, resets, hangs])
async def test_a_cut_stream_ends_with_an_error_and_without_its_last_chunk(
    ends: Callable[..., Behaviour],
) -> None:
    async with (
        proxy_and_engines(2, idle_timeout_s=0.1) as (proxy, engines),
        client_of(proxy) as client,
    ):
        for engine in engines:
            engine.otherwise = ends(STREAM_HEAD, chunk(EVENT))
        got = await client.ask(post(chat_body(stream=True)))
        assert (got.status, got.is_whole) == (200, False)
        assert got.body.startswith(EVENT + b"data: ")
        assert got.body.endswith(b"\n\n")
        error = json.loads(got.body[len(EVENT) + len(b"data: ") :])["error"]
        assert error["type"] == "api_error"
        assert error["code"] == "node_failed"
        assert sorted(len(engine.received) for engine in engines) == [0, 1]
        assert is_failed(proxy, got.headers["x-prefix-cache-node"])
        await proxy.settles()


async def test_no_error_follows_an_event_that_was_cut() -> None:
    """A client would take it for the end of that event."""
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes(STREAM_HEAD, chunk(EVENT + b'data: {"n"'))]
        got = await client.ask(post())
        assert got.body == EVENT + b'data: {"n"'
        assert not got.is_whole


@pytest.mark.parametrize("events", [b"", EVENT, EVENT.replace(b"\n", b"\r\n")])
async def test_an_error_follows_whole_events(events: bytes) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes(STREAM_HEAD, chunk(events) if events else b"")]
        got = await client.ask(post())
        assert got.body.startswith(events + b'data: {"error":')
        assert not got.is_whole


async def test_a_cut_answer_of_known_length_stays_short() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")]
        got = await client.ask(post())
        assert (got.body, got.is_whole) == (b"abc", False)
        assert is_failed(proxy, "a")
        await proxy.settles()


async def test_a_cut_answer_of_another_type_is_given_no_event() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        head = STREAM_HEAD.replace(b"text/event-stream", b"application/json")
        engine.next_ones = [closes(head, chunk(b"{"))]
        got = await client.ask(post())
        assert (got.body, got.is_whole) == (b"{", False)


async def test_an_answer_that_ends_with_its_connection_is_cut_by_a_reset() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [resets(b"HTTP/1.1 200 OK\r\n\r\n", b"abc")]
        got = await client.ask(post())
        assert (got.body, got.is_whole) == (b"abc", False)
        await proxy.settles()


async def test_a_cut_answer_to_a_client_of_http_1_0_ends_with_a_reset() -> None:
    """The end of the connection would be the end of the answer for it."""
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes(STREAM_HEAD, chunk(EVENT))]
        client.send(OLD)
        assert (await client.head())[0] == 200
        with pytest.raises(ConnectionResetError):
            await client.reader.read()
        await proxy.settles()


async def test_an_answer_that_stops_is_cut_after_a_while() -> None:
    async with (
        proxy_and_engines(1, idle_timeout_s=0.1) as (proxy, [engine]),
        client_of(proxy) as client,
    ):
        engine.next_ones = [hangs(STREAM_HEAD, chunk(EVENT))]
        got = await client.ask(post())
        assert b"it sent nothing for 0.1 s" in got.body
        assert is_failed(proxy, "a")


async def test_the_turn_of_a_cut_answer_is_not_served() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes(STREAM_HEAD, chunk(EVENT))]
        await client.ask(post())
        assert proxy.node("a").turns == 0


async def test_an_error_that_is_cut_is_cut_for_the_client_too() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes(b"HTTP/1.1 400 x\r\nContent-Length: 10\r\n\r\nabc")]
        got = await client.ask(post())
        assert (got.status, got.is_whole) == (400, False)
        await proxy.settles()


async def test_a_whole_answer_is_whole_whatever_follows() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(STREAM_HEAD + chunk(EVENT) + b"0\r\n\r\nnonsense")]
        got = await client.ask(post())
        assert (got.body, got.is_whole) == (EVENT, True)
        assert not is_failed(proxy, "a")
