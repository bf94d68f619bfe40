"""What could be read in two ways is refused, and no engine ever sees it."""

from __future__ import annotations

import asyncio

import pytest

from tests.router.http.engines import chunk
from tests.router.http.eventually import eventually
from tests.router.http.proxies import (
    CHAT,
    chat_body,
    client_of,
    get,
    post,
    proxy_and_engines,
)

BODY = chat_body()
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
CHUNKS = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)
SMUGGLED = b"POST /v1/chat/completions HTTP/1.1\r\nHost: smuggled\r\nContent-Length: 0\r\n\r\n"


def request(fields: bytes, body: bytes = BODY, line: bytes = b"") -> bytes:
    line = line or f"POST {CHAT} HTTP/1.1".encode()
    return b"%b\r\nHost: r\r\n%b\r\n%b" % (line, fields, body)


HOSTILE = {
    "two lengths": (request(LENGTH + b"Content-Length: 5\r\n"), 400),
    "one length twice": (request(LENGTH + LENGTH), 400),
    "a list of lengths": (request(b"Content-Length: 5, 5\r\n"), 400),
    "a signed length": (request(b"Content-Length: +5\r\n"), 400),
    "a negative length": (request(b"Content-Length: -5\r\n"), 400),
    "a hexadecimal length": (request(b"Content-Length: 0x5\r\n"), 400),
    "an empty length": (request(b"Content-Length:\r\n"), 400),
    "a length in two parts": (request(b"Content-Length: 1 1\r\n"), 400),
    "a length without end": (request(b"Content-Length: 99999999999999999999999\r\n"), 400),
    "length and chunks": (request(LENGTH + b"Transfer-Encoding: chunked\r\n", CHUNKS), 400),
    "chunks and length": (request(b"Transfer-Encoding: chunked\r\n" + LENGTH, CHUNKS), 400),
    "gzip and chunks": (request(b"Transfer-Encoding: gzip, chunked\r\n", CHUNKS), 501),
    "chunks not last": (request(b"Transfer-Encoding: chunked, gzip\r\n", CHUNKS), 400),
    "another coding": (request(b"Transfer-Encoding: identity\r\n", CHUNKS), 501),
    "nearly chunked": (request(b"Transfer-Encoding: xchunked\r\n", CHUNKS), 501),
    "chunked with a parameter": (request(b"Transfer-Encoding: chunked;q=1\r\n", CHUNKS), 501),
    "chunked in quotes": (request(b'Transfer-Encoding: "chunked"\r\n', CHUNKS), 501),
    "chunked twice": (request(b"Transfer-Encoding: chunked\r\n" * 2, CHUNKS), 400),
    "chunked and nothing": (
        request(b"Transfer-Encoding: chunked\r\nTransfer-Encoding:\r\n", CHUNKS),
        400,
    ),
    "no coding": (request(b"Transfer-Encoding:\r\n", CHUNKS), 400),
    "chunked behind a tab": (request(b"Transfer-Encoding: \x0bchunked\r\n", CHUNKS), 400),
    "chunks in 1.0": (
        request(b"Transfer-Encoding: chunked\r\n", CHUNKS, f"POST {CHAT} HTTP/1.0".encode()),
        501,
    ),
    "space before the colon": (request(b"Content-Length : 5\r\n"), 400),
    "space before the name": (request(b"X: 1\r\n Content-Length: 5\r\n"), 400),
    "a folded field": (request(LENGTH + b"X: 1\r\n 2\r\n"), 400),
    "a bare LF": (request(LENGTH + b"X: 1\nY: 2\r\n"), 400),
    "a bare CR": (request(LENGTH + b"X: 1\rY: 2\r\n"), 400),
    "LF only": (request(LENGTH).replace(b"\r\n", b"\n"), 400),
    "an end of LF": (f"POST {CHAT} HTTP/1.1\r\nHost: r\r\n".encode() + LENGTH + b"\n", 400),
    "NUL in a value": (request(LENGTH + b"X: a\x00b\r\n"), 400),
    "NUL in a name": (request(LENGTH + b"X\x00: a\r\n"), 400),
    "a control character": (request(LENGTH + b"X: \x01\r\n"), 400),
    "a field without a name": (request(LENGTH + b": a\r\n"), 400),
    "a field without a colon": (request(LENGTH + b"X\r\n"), 400),
    "a name that is no token": (request(LENGTH + b"X(y): a\r\n"), 400),
    "no Host": (post().replace(b"Host: router\r\n", b""), 400),
    "two Hosts": (request(LENGTH + b"Host: r\r\n"), 400),
    "a Host with a path": (request(LENGTH).replace(b"Host: r", b"Host: r/x"), 400),
    "a Host with a user": (request(LENGTH).replace(b"Host: r", b"Host: u@r"), 400),
    "another expectation": (request(LENGTH + b"Expect: 200-ok\r\n"), 417),
    "HTTP/0.9": (b"GET /health\r\n\r\n", 505),
    "HTTP/1.2": (get("/health").replace(b"1.1", b"1.2"), 400),
    "HTTP/2": (get("/health").replace(b"1.1", b"2.0"), 505),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    "CONNECT": (b"CONNECT r:80 HTTP/1.1\r\nHost: r:80\r\n\r\n", 501),
    "TRACE": (request(b"", b"", f"TRACE {CHAT} HTTP/1.1".encode()), 405),
    "a method in lower case": (request(LENGTH, line=f"post {CHAT} HTTP/1.1".encode()), 400),
    "an unknown method": (request(LENGTH, line=f"POSTS {CHAT} HTTP/1.1".encode()), 400),
    "a space too many": (request(LENGTH, line=f"POST {CHAT} x HTTP/1.1".encode()), 400),
    "a tab in the line": (request(LENGTH, line=f"POST\t{CHAT} HTTP/1.1".encode()), 400),
    "a space at the end": (request(LENGTH, line=f"POST {CHAT} HTTP/1.1 ".encode()), 400),
    "a target with NUL": (request(LENGTH, line=b"POST /v1\x00 HTTP/1.1"), 400),
    "a target of bytes": (request(LENGTH, line=b"POST /\xff HTTP/1.1"), 400),
    "a target with a fragment": (request(LENGTH, line=f"POST {CHAT}#f HTTP/1.1".encode()), 400),
    "a target of another scheme": (request(LENGTH, line=b"POST ftp://r/ HTTP/1.1"), 400),
    "a target of one star": (request(LENGTH, line=b"OPTIONS * HTTP/1.1"), 400),
    "another path": (request(LENGTH, line=b"POST /v1/chat HTTP/1.1"), 404),
    "a path written otherwise": (
        request(LENGTH, line=b"POST /v1/chat/../completions HTTP/1.1"),
        404,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_is_refused_and_never_forwarded(name: str) -> None:
    hostile, status = HOSTILE[name]
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        client.send(hostile + SMUGGLED)
        got = await client.answer()
        assert got.status == status
        assert got.headers["connection"] == "close"
        assert got.headers["x-request-id"]
        assert got.error["type"] == ("api_error" if status > 500 else "invalid_request_error")
        assert await client.is_closed()
        assert engine.received == []


MALFORMED_CHUNKS = {
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "a size that is no number": b"x\r\nabc\r\n0\r\n\r\n",
    "a size with 0x": b"0x3\r\nabc\r\n0\r\n\r\n",
    "a signed size": b"+3\r\nabc\r\n0\r\n\r\n",
    "a negative size": b"-3\r\nabc\r\n0\r\n\r\n",
    "a space before the size": b" 3\r\nabc\r\n0\r\n\r\n",
    "a space after the size": b"3 \r\nabc\r\n0\r\n\r\n",
    "a size without end": b"fffffffffffffffff\r\nabc\r\n0\r\n\r\n",
    "more than its size": b"3\r\nabcd\r\n0\r\n\r\n",
    "no line end after the data": b"3\r\nabc0\r\n\r\n",
    "LF only": b"3\nabc\n0\n\n",
    "CR only": b"3\rabc\r0\r\r",
    "LF in an extension": b'3;x="a\nb"\r\nabc\r\n0\r\n\r\n',
    "CR in an extension": b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "NUL in an extension": b"3;\x00\r\nabc\r\n0\r\n\r\n",
    "a malformed trailer": b"3\r\nabc\r\n0\r\nX : y\r\n\r\n",
    "a length in a trailer": b"3\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED_CHUNKS)
async def test_malformed_chunks_are_refused_and_never_forwarded(name: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        client.send(request(b"Transfer-Encoding: chunked\r\n", MALFORMED_CHUNKS[name]) + SMUGGLED)
        assert (await client.answer()).status == 400
        assert await client.is_closed()
        assert engine.received == []


HARMLESS = {
    "small extensions": (b"Transfer-Encoding: chunked\r\n", b';a=b;c="d e"'),
    "chunked in capitals": (b"Transfer-Encoding: CHUNKED\r\n", b""),
    "space after the value": (b"Transfer-Encoding: chunked \r\n", b""),
    "zeros before the size": (b"Transfer-Encoding: chunked\r\n", b""),
    "bytes beyond ASCII": (b"Transfer-Encoding: chunked\r\nX: caf\xc3\xa9\r\n", b""),
    "an empty field": (b"Transfer-Encoding: chunked\r\nX:\r\n", b""),
}


@pytest.mark.parametrize("name", HARMLESS)
async def test_what_is_only_unusual_is_served(name: str) -> None:
    fields, extension = HARMLESS[name]
    chunks = b"000%x%b\r\n%b\r\n0%b\r\n\r\n" % (len(BODY), extension, BODY, extension)
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        assert (await client.ask(request(fields, chunks))).status == 200
        assert engine.bodies == [BODY]


async def test_a_client_of_http_1_0_needs_no_host() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        assert (await client.ask(b"GET /health HTTP/1.0\r\n\r\n")).status == 200


async def test_a_malformed_request_sent_ahead_waits_for_the_answers_before_it() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        client.send(post() + b"POST  nonsense\r\n\r\n" + post())
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 400
        assert await client.is_closed()
        assert len(engine.received) == 1


async def test_nothing_is_read_after_a_request_that_said_it_is_the_last() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        client.send(post(fields=b"Connection: close\r\n") + SMUGGLED)
        assert (await client.answer()).status == 200
        assert await client.is_closed()
        assert len(engine.received) == 1


# --- limits -------------------------------------------------------------------------------


async def test_a_body_above_the_limit_is_refused_before_it_is_read() -> None:
    async with proxy_and_engines(1, max_body_bytes=1000) as (proxy, [engine]):
        async with client_of(proxy) as client:
            client.send(request(b"Content-Length: 1001\r\n", b""))
            got = await client.answer()
            assert got.status == 413
            assert "1000 bytes" in got.error["message"]
            assert await client.is_closed()
        async with client_of(proxy) as client:
            assert (await client.ask(post(chat_body() + b" " * (1000 - len(BODY))))).status == 200
        assert len(engine.received) == 1


async def test_a_chunked_body_above_the_limit_is_refused_as_it_comes() -> None:
    async with proxy_and_engines(1, max_body_bytes=1000) as (proxy, [engine]):
        async with client_of(proxy) as client:
            client.send(request(b"Transfer-Encoding: chunked\r\n", chunk(b"x" * 600)))
            client.send(chunk(b"x" * 600))
            assert (await client.answer()).status == 413
            assert await client.is_closed()
        assert engine.received == []


async def test_the_answer_to_a_body_too_large_arrives_while_the_client_still_sends() -> None:
    async with proxy_and_engines(1, max_body_bytes=1000) as (proxy, _), client_of(proxy) as client:
        client.send(request(b"Content-Length: 9000000\r\n", b"x" * 9_000_000))
        assert (await client.answer()).status == 413


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /" + b"x" * 5000 + b" HTTP/1.1\r\nHost: r\r\n\r\n", 414),
        (b"POST /" + b"x" * 5000, 414),
        (b"GET /health HTTP/1.1\r\nHost: r\r\nX: " + b"x" * 5000 + b"\r\n\r\n", 431),
        (b"GET /health HTTP/1.1\r\nHost: r\r\nX: " + b"x" * 5000, 431),
        (b"GET /health HTTP/1.1\r\nHost: r\r\n" + b"X: x\r\n" * 1000 + b"\r\n", 431),
        (b"\r\n" * 3000, 414),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_head_above_the_limit_is_refused(head: bytes, status: int, at_once: bool) -> None:
    async with proxy_and_engines(1, max_head_bytes=4096) as (proxy, [engine]):
        async with client_of(proxy) as client:
            for start in range(0, len(head), len(head) if at_once else 1000):
                client.send(head[start : start + (len(head) if at_once else 1000)])
                await asyncio.sleep(0.001)
            assert (await client.answer()).status == status
            assert await client.is_closed()
        assert engine.received == []


async def test_chunks_that_carry_little_but_extensions_are_refused() -> None:
    async with proxy_and_engines(1, max_head_bytes=4096) as (proxy, [engine]):
        async with client_of(proxy) as client:
            client.send(request(b"Transfer-Encoding: chunked\r\n", b""))
            for _ in range(100):
                client.send(b"1;x=" + b"y" * 1000 + b"\r\nz\r\n")
                await asyncio.sleep(0.001)
            assert (await client.answer()).status == 400
        assert engine.received == []


@pytest.mark.parametrize(("size", "status"), [(1, 400), (8, 400), (16, 404), (64, 404)])
async def test_a_large_body_in_tiny_chunks_is_refused(size: int, status: int) -> None:
    """Each of them costs many times what it carries."""
    body = b'{"model": "%b"}' % (b"x" * 400_000)
    pieces = [chunk(body[i : i + size]) for i in range(0, len(body), size)]
    sent = b"".join(pieces) + b"0\r\n\r\n"
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        client.send(request(b"Transfer-Encoding: chunked\r\n", b""))
        for start in range(0, len(sent), 30_000):
            client.send(sent[start : start + 30_000])
            await asyncio.sleep(0.001)
        assert (await client.answer()).status == status
        assert engine.received == []


async def test_trailers_without_end_are_refused() -> None:
    async with proxy_and_engines(1, max_head_bytes=4096) as (proxy, [engine]):
        async with client_of(proxy) as client:
            client.send(request(b"Transfer-Encoding: chunked\r\n", chunk(BODY) + b"0\r\n"))
            for _ in range(100):
                client.send(b"X: " + b"y" * 1000 + b"\r\n")
                await asyncio.sleep(0.001)
            assert (await client.answer()).status == 400
        assert engine.received == []


@pytest.mark.parametrize(
    "beginning",
    [b"P", b"POST /v1", b"POST /v1 HTTP/1.1\r\nHost: r\r\nX: ", request(LENGTH, b"{")],
)
async def test_a_request_that_does_not_come_in_time_is_given_up(beginning: bytes) -> None:
    async with proxy_and_engines(1, head_timeout_s=0.1) as (proxy, [engine]):
        async with client_of(proxy) as client:
            client.send(beginning)
            got = await client.answer()
            assert got.status == 408
            assert await client.is_closed()
        assert engine.received == []


async def test_single_bytes_of_a_head_do_not_put_the_end_off() -> None:
    async with proxy_and_engines(1, head_timeout_s=0.2) as (proxy, _), client_of(proxy) as client:
        client.send(b"GET /health HTTP/1.1\r\nX: ")
        answer = asyncio.ensure_future(client.answer())
        while not answer.done():
            client.send(b"x")
            await asyncio.sleep(0.01)
        assert answer.result().status == 408


async def test_a_client_that_is_silent_between_requests_is_left_alone() -> None:
    async with proxy_and_engines(1, head_timeout_s=0.05) as (proxy, _), client_of(proxy) as client:
        assert (await client.ask(get("/health"))).status == 200
        await asyncio.sleep(0.15)
        assert (await client.ask(get("/health"))).status == 200


async def test_a_body_in_slow_pieces_is_served() -> None:
    body = chat_body("x" * 20_000)
    async with proxy_and_engines(1, head_timeout_s=0.5) as (proxy, _), client_of(proxy) as client:
        client.send(request(b"Content-Length: %d\r\n" % len(body), b""))
        for i in range(0, len(body), 2000):
            client.send(body[i : i + 2000])
            await asyncio.sleep(0.06)
        assert (await client.answer()).status == 200


async def test_single_bytes_of_a_body_do_not_put_the_end_off() -> None:
    async with proxy_and_engines(1, head_timeout_s=0.2) as (proxy, [engine]):
        async with client_of(proxy) as client:
            client.send(request(b"Content-Length: 60000\r\n", b""))
            answer = asyncio.ensure_future(client.answer())
            while not answer.done():
                client.send(b"x")
                await asyncio.sleep(0.01)
            assert answer.result().status == 408
        assert engine.received == []


@pytest.mark.parametrize("beginning", [b"POST /v1", request(LENGTH, b"{")])
async def test_a_request_that_begins_behind_another_one_has_an_end_too(beginning: bytes) -> None:
    """The first one came in pieces, and the second with the last of them."""
    async with proxy_and_engines(1, head_timeout_s=0.2) as (proxy, _), client_of(proxy) as client:
        for part in (post()[:10], post()[10:-5], post()[-5:] + beginning):
            client.send(part)
            await asyncio.sleep(0.02)
        assert (await client.answer()).status == 200
        assert (await client.answer()).status == 408


async def test_nothing_is_left_of_clients_that_come_and_go() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]):
        before = len(asyncio.all_tasks())
        for beginning in (b"", b"POST", request(LENGTH, b"{"), post()):
            for _ in range(20):
                async with client_of(proxy) as client:
                    client.send(beginning)
        await eventually(lambda: len(engine.open_connections) <= 20)
        await proxy.settles()
        await eventually(lambda: len(asyncio.all_tasks()) == before)
