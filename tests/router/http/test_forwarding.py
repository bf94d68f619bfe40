"""Requests reach an engine as they are, and its answers come back as they are."""

from __future__ import annotations

import asyncio

import pytest

from tests.router.http.engines import (
    STREAM_END,
    STREAM_HEAD,
    answers,
    chat_answer,
    chunk,
    closes,
    waits_for,
    whole,
)
from tests.router.http.eventually import eventually
from tests.router.http.proxies import (
    chat_body,
    client_of,
    get,
    post,
    proxy_and_engines,
)


async def test_the_body_arrives_unchanged_and_the_answer_too() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        got = await client.ask(post(chat_body("hi")))
        assert got.status == 200
        assert got.body == chat_answer().partition(b"\r\n\r\n")[2]
        assert engine.bodies == [chat_body("hi")]
        assert engine.heads[0].split(b"\r\n")[0] == b"POST /v1/chat/completions HTTP/1.1"
        await proxy.settles()


async def test_the_answer_says_where_it_comes_from_and_why() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        first = await client.ask(post())
        second = await client.ask(post())
        assert first.headers["x-prefix-cache-node"] == "a"
        assert first.headers["x-prefix-cache-reason"] == "new"
        assert second.headers["x-prefix-cache-reason"] == "pinned"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/v1/embeddings"])
async def test_every_path_is_forwarded_with_its_query(path: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        body = b'{"model": "m", "prompt": "p", "input": "i"}'
        got = await client.ask(post(body, f"{path}?api-version=2%201&x"))
        assert got.status == 200
        assert engine.received[0].startswith(
            b"POST %b?api-version=2%%201&x HTTP/1.1\r\n" % path.encode()
        )
        assert engine.bodies == [body]


async def test_a_chunked_body_is_forwarded_with_its_length() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        body = chat_body()
        client.send(b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\n")
        client.send(b"Transfer-Encoding: chunked\r\n\r\n")
        client.send(chunk(body[:5]) + chunk(body[5:]) + b"0\r\nTrailer: dropped\r\n\r\n")
        assert (await client.answer()).status == 200
        assert engine.bodies == [body]
        assert b"\r\ncontent-length: %d" % len(body) in engine.heads[0]
        assert b"railer" not in engine.received[0]
        assert b"transfer-encoding" not in engine.heads[0].lower()


async def test_what_concerns_one_connection_only_is_not_passed_on() -> None:
    fields = (
        b"Connection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5\r\nX-Mine: 1\r\nTE: trailers\r\n"
        b"Proxy-Authorization: secret\r\nUpgrade: h2c\r\nTrailer: X\r\n"
    )
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(whole(b"{}", fields=fields + b"Server: e\r\n"))]
        more = b"Authorization: Bearer k\r\nX-Session-ID: s\r\nExpect: 100-continue\r\n"
        got = await client.ask(post(fields=fields + more))
        assert sorted(line.partition(b": ") for line in engine.heads[0].split(b"\r\n")[1:]) == [
            (b"authorization", b": ", b"Bearer k"),
            (b"content-length", b": ", b"%d" % len(chat_body())),
            (b"host", b": ", engine.url.removeprefix("http://").encode()),
            (b"x-request-id", b": ", got.headers["x-request-id"].encode()),
            (b"x-session-id", b": ", b"s"),
        ]
        assert set(got.headers) == {
            "content-type",
            "server",
            "content-length",
            "x-prefix-cache-node",
            "x-prefix-cache-reason",
            "x-request-id",
        }


async def test_what_reads_like_framing_to_some_servers_is_not_passed_on() -> None:
    fields = (
        b"Transfer_Encoding: chunked\r\nContent_Length: 3\r\nKeep_Alive: 1\r\n"
        b"Proxy_Authorization: x\r\nX_Request_ID: x\r\nX_Prefix_Cache_Node: z\r\nX_Mine: 1\r\n"
    )
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(whole(b"{}", fields=fields))]
        got = await client.ask(post(fields=fields))
        names = {line.partition(b":")[0] for line in engine.heads[0].split(b"\r\n")[1:]}
        assert names == {b"host", b"x_mine", b"x-request-id", b"content-length"}
        assert [name for name in got.headers if "_" in name] == ["x_mine"]


async def test_no_compressed_answer_is_asked_for() -> None:
    """The usage in it could not be read."""
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        await client.ask(post(fields=b"Accept-Encoding: gzip, br\r\nAccept: text/plain\r\n"))
        assert b"accept-encoding" not in engine.heads[0]
        assert b"accept: text/plain" in engine.heads[0]


async def test_fields_that_repeat_are_all_passed_on() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        await client.ask(post(fields=b"X-A: 1\r\nX-A: 2\r\n"))
        assert b"\r\nx-a: 1\r\nx-a: 2\r\n" in engine.heads[0] + b"\r\n"


@pytest.mark.parametrize("given", ["a", "req-1/2", "x" * 128])
async def test_the_client_s_request_id_goes_all_the_way(given: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(whole(b"{}", fields=b"X-Request-ID: the engine's\r\n"))]
        got = await client.ask(post(fields=f"X-Request-ID: {given}\r\n".encode()))
        assert got.headers["x-request-id"] == given
        assert b"\r\nx-request-id: %b\r\n" % given.encode() in engine.heads[0]
        assert proxy.decisions.find(given).node is proxy.node("a")


@pytest.mark.parametrize("given", ["", "x" * 129, "two words", "caf\u00e9"])
async def test_a_request_id_that_is_none_is_replaced(given: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        got = await client.ask(post(fields=f"X-Request-ID: {given}\r\n".encode()))
        made = got.headers["x-request-id"]
        assert len(made) == 32
        assert engine.heads[0].lower().count(b"x-request-id") == 1
        assert b"\r\nx-request-id: %b\r\n" % made.encode() in engine.heads[0]
        assert (await client.ask(post())).headers["x-request-id"] != made


async def test_a_stream_passes_as_it_comes() -> None:
    """The first event is with the client while the engine still holds the second."""
    go_on = asyncio.Event()
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [
            waits_for(
                go_on,
                answers(chunk(b"data: 2\n\n"), chunk(b"data: [DONE]\n\n") + STREAM_END),
                STREAM_HEAD,
                chunk(b"data: 1\n\n"),
            )
        ]
        client.send(post(chat_body(stream=True)))
        status, headers = await client.head()
        assert (status, headers["content-type"]) == (200, "text/event-stream")
        assert headers["transfer-encoding"] == "chunked"
        assert await client.chunk() == b"data: 1\n\n"
        assert proxy.load["a"][0] == 1
        go_on.set()
        rest = b""
        while piece := await client.chunk():
            rest += piece
        assert rest == b"data: 2\n\ndata: [DONE]\n\n"
        await proxy.settles()
        assert (await client.ask(post())).status == 200


async def test_a_stream_of_single_bytes_arrives() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        stream = STREAM_HEAD + chunk(b"data: 1\n\n") + STREAM_END
        engine.next_ones = [answers(*(stream[i : i + 1] for i in range(len(stream))))]
        got = await client.ask(post())
        assert (got.body, got.is_whole) == (b"data: 1\n\n", True)


async def test_an_answer_that_ends_with_its_connection_is_framed_anew() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [closes(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nwhole")]
        got = await client.ask(post())
        assert got.headers["transfer-encoding"] == "chunked"
        assert (got.body, got.is_whole) == (b"whole", True)
        assert (await client.ask(post())).status == 200


@pytest.mark.parametrize("status", ["204 No Content", "304 Not Modified"])
async def test_an_answer_without_a_body_has_none(status: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(b"HTTP/1.1 %b\r\nContent-Length: 5\r\n\r\n" % status.encode())]
        assert (await client.ask(post())).status == int(status[:3])
        assert (await client.ask(post())).status == 200
        assert engine.connections == 1
        await proxy.settles()


async def test_interim_answers_of_the_engine_are_swallowed() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
        engine.next_ones = [answers(interim + chat_answer())]
        got = await client.ask(post())
        assert got.status == 200
        assert "link" not in got.headers


async def test_connections_to_engines_are_used_again() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        for _ in range(5):
            await client.ask(post())
        async with client_of(proxy) as another:
            await another.ask(post())
        assert engine.connections == 1
        assert len(engine.received) == 6


async def test_a_connection_that_the_engine_ends_is_not_used_again() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.otherwise = answers(whole(b"{}", fields=b"Connection: close\r\n"))
        await client.ask(post())
        await client.ask(post())
        assert engine.connections == 2


async def test_requests_sent_ahead_are_answered_in_order() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        client.send(post(chat_body("1")) + get("/health") + post(chat_body("2")) + get("/nope"))
        got = [await client.answer() for _ in range(4)]
        assert [answer.status for answer in got] == [200, 200, 200, 404]
        assert got[1].json == {"status": "ok"}
        assert engine.bodies == [chat_body("1"), chat_body("2")]
        assert await client.is_closed()


async def test_requests_sent_ahead_wait_in_the_network() -> None:
    """While one answer is under way no more than one read of what follows is taken in."""
    go_on = asyncio.Event()
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [waits_for(go_on, answers(chat_answer()))]
        request = post(chat_body("x" * 100_000))
        client.transport.set_write_buffer_limits(0)
        client.send(request)
        await eventually(lambda: len(engine.received) == 1)
        for _ in range(300):
            client.send(request)
        unsent = client.transport.get_write_buffer_size
        assert unsent() > 10_000_000
        go_on.set()
        for _ in range(301):
            assert (await client.answer()).status == 200
        assert unsent() == 0
        assert len(engine.received) == 301


async def test_a_client_of_http_1_0_gets_what_it_can_read() -> None:
    old = post().replace(b"HTTP/1.1", b"HTTP/1.0")
    async with proxy_and_engines(1) as (proxy, [engine]):
        async with client_of(proxy) as client:
            got = await client.ask(old)
            assert (got.status, got.headers["connection"]) == (200, "close")
            assert await client.is_closed()
        async with client_of(proxy) as client:
            got = await client.ask(old.replace(b"Host", b"Connection: keep-alive\r\nHost"))
            assert got.headers["connection"] == "keep-alive"
            assert (await client.ask(old)).status == 200
        engine.next_ones = [answers(STREAM_HEAD + chunk(b"data: 1\n\n") + STREAM_END)]
        async with client_of(proxy) as client:
            got = await client.ask(old)
            assert "transfer-encoding" not in got.headers
            assert (got.body, got.is_whole) == (b"data: 1\n\n", True)


async def test_connection_close_is_kept() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        got = await client.ask(post(fields=b"Connection: close\r\n"))
        assert got.headers["connection"] == "close"
        assert await client.is_closed()


async def test_a_body_is_asked_for_when_the_client_waits() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        head, _, body = post(fields=b"Expect: 100-continue\r\n").partition(b"\r\n\r\n")
        client.send(head + b"\r\n\r\n")
        assert await client.head() == (100, {})
        client.send(body)
        assert (await client.answer()).status == 200
        assert engine.bodies == [body]


async def test_a_body_is_asked_for_after_the_answer_before_it() -> None:
    go_on = asyncio.Event()
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [waits_for(go_on, answers(chat_answer()))]
        head, _, body = post(fields=b"Expect: 100-continue\r\n").partition(b"\r\n\r\n")
        client.send(post() + head + b"\r\n\r\n")
        await eventually(lambda: len(engine.received) == 1)
        go_on.set()
        assert (await client.answer()).status == 200
        assert await client.head() == (100, {})
        client.send(body)
        assert (await client.answer()).status == 200
        assert len(engine.received) == 2


@pytest.mark.parametrize("framing", ["length", "chunks"])
async def test_an_offer_of_another_protocol_is_ignored(framing: str) -> None:
    """As some clients make it with each first request, with a body behind it."""
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAM\r\n"
    request = post(fields=offer)
    if framing == "chunks":
        request = (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: r\r\nTransfer-Encoding: chunked\r\n"
            + offer
            + b"\r\n"
            + chunk(chat_body())
            + b"0\r\n\r\n"
        )
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        assert (await client.ask(request)).status == 200
        assert engine.bodies == [chat_body()]
        assert b"upgrade" not in engine.heads[0].lower()
        assert b"http2-settings" not in engine.heads[0].lower()
        assert (await client.ask(get("/health", offer))).status == 200
        assert (await client.ask(request)).status == 200


async def test_many_offers_of_another_protocol_at_once_are_ignored() -> None:
    request = get("/health", b"Connection: Upgrade\r\nUpgrade: x\r\n")
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        client.send(request * 3000)
        for _ in range(3000):
            assert (await client.answer()).status == 200


async def test_a_request_in_single_bytes_is_one() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        for byte in post():
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.answer()).status == 200
        assert engine.bodies == [chat_body()]


async def test_a_full_url_as_target_is_taken_for_its_path() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        target = b"http://elsewhere:1/v1/chat/completions?x=1"
        assert (await client.ask(post().replace(b"/v1/chat/completions", target))).status == 200
        assert engine.received[0].startswith(b"POST /v1/chat/completions?x=1 HTTP/1.1\r\n")
        assert b"elsewhere" not in engine.received[0]


async def test_a_large_body_and_a_large_answer_pass() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        body = chat_body("x" * 3_000_000)
        engine.next_ones = [answers(whole(b"y" * 5_000_000))]
        got = await client.ask(post(body))
        assert engine.bodies == [body]
        assert got.body == b"y" * 5_000_000
        await proxy.settles()
