"""An engine's answer that could be read in two ways is a failure of its node."""

from __future__ import annotations

import pytest

from tests.router.http.engines import answers, chunk, closes
from tests.router.http.proxies import client_of, is_failed, post, proxy_and_engines

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
END = b"0\r\n\r\n"

MALFORMED_HEADS = {
    "two lengths": OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "a signed length": OK + b"Content-Length: +1\r\n\r\nx",
    "length and chunks": OK + b"Content-Length: 1\r\n" + CHUNKED + b"\r\n" + END,
    "gzip and chunks": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + END,
    "gzip": OK + b"Transfer-Encoding: gzip\r\n\r\n" + END,
    "chunked twice": OK + CHUNKED + CHUNKED + b"\r\n" + END,
    "chunked, then gzip": OK + CHUNKED + b"Transfer-Encoding: gzip\r\n\r\n" + END,
    "a folded field": OK + b"Content-Length: 1\r\nX: a\r\n b\r\n\r\nx",
    "a bare LF": OK + b"Content-Length: 1\nX: a\r\n\r\nx",
    "a bare CR": OK + b"Content-Length: 1\r\nX: a\rb\r\n\r\nx",
    "NUL": OK + b"Content-Length: 1\r\nX: a\x00\r\n\r\nx",
    "a space before the colon": OK + b"Content-Length : 1\r\n\r\nx",
    "HTTP/2": b"HTTP/2.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "HTTP/0.9": b"HTTP/0.9 200 OK\r\nContent-Length: 1\r\n\r\nx",
    "a status of two digits": b"HTTP/1.1 20 OK\r\nContent-Length: 1\r\n\r\nx",
    "a status beyond all": b"HTTP/1.1 999 OK\r\nContent-Length: 1\r\n\r\nx",
    "another protocol": b"HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
    "a head without end": OK + b"X: " + b"x" * 70_000,
}


@pytest.mark.parametrize("name", MALFORMED_HEADS)
async def test_a_malformed_head_is_not_passed_on(name: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(MALFORMED_HEADS[name])]
        got = await client.ask(post())
        assert got.status == 502
        assert got.error["code"] == "node_failed"
        assert is_failed(proxy, "a")
        await proxy.settles()


async def test_another_protocol_is_a_failure_that_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(MALFORMED_HEADS["another protocol"] + b"x")]
        got = await client.ask(post())
        assert got.status == 502
        assert "it takes up another protocol" in got.error["message"]
        assert "Traceback" not in caplog.text
        assert is_failed(proxy, "a")


MALFORMED_CHUNKS = {
    "no size": b"\r\nabc\r\n",
    "a size that is no number": b"x\r\nabc\r\n",
    "more than its size": b"3\r\nabcd\r\n",
    "LF only": b"3\nabc\n",
    "a malformed trailer": b"0\r\nX : y\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED_CHUNKS)
async def test_malformed_chunks_cut_the_answer_off(name: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        head = OK + CHUNKED + b"Content-Type: text/plain\r\n\r\n"
        engine.next_ones = [answers(head + chunk(b"begin"), MALFORMED_CHUNKS[name])]
        client.send(post())
        assert (await client.head())[0] == 200
        assert await client.chunk() == b"begin"
        assert await client.is_closed()
        assert is_failed(proxy, "a")
        await proxy.settles()


async def test_trailers_and_extensions_of_an_engine_are_dropped() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(OK + CHUNKED + b"\r\n3;a=b\r\nabc\r\n0\r\nX-T: 1\r\n\r\n")]
        got = await client.ask(post())
        assert (got.body, got.is_whole) == (b"abc", True)
        assert "x-t" not in got.headers
        assert (await client.ask(post())).status == 200


async def test_what_names_the_router_in_an_answer_is_not_the_engine_s() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        fields = b"X-Prefix-Cache-Node: z\r\nX-Prefix-Cache-Else: z\r\nContent-Length: 0\r\n"
        engine.next_ones = [answers(OK + fields + b"\r\n")]
        got = await client.ask(post())
        assert got.headers["x-prefix-cache-node"] == "a"
        assert "x-prefix-cache-else" not in got.headers


async def test_the_reason_phrase_of_an_engine_is_not_passed_on() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes(b"HTTP/1.1 200 \x01odd\r\nContent-Length: 0\r\n\r\n")]
        client.send(post())
        assert (await client.reader.readuntil(b"\r\n")) == b"HTTP/1.1 200 OK\r\n"
