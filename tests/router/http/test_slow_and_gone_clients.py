"""Clients that leave or do not read: what is under way for them ends or waits."""

from __future__ import annotations

import asyncio
import os
import socket

import pytest
from prometheus_client import CollectorRegistry

from prefix_cache.client import NodeState
from router.http.client_connection import ClientConnection
from router.http_api import HttpApi
from tests.router.http.engines import (
    STREAM_END,
    STREAM_HEAD,
    Behaviour,
    Engine,
    answers,
    chunk,
    hangs,
    running_engine,
    waits_for,
    whole,
)
from tests.router.http.eventually import eventually
from tests.router.http.proxies import (
    Client,
    chat_body,
    client_of,
    post,
    proxy_and_engines,
    running_proxy,
)

LARGE = b"x" * 30_000_000


@pytest.mark.parametrize(
    "sent",
    [
        (),
        (b"HTTP/1.1 200 OK\r\nContent-",),
        (STREAM_HEAD,),
        (STREAM_HEAD, chunk(b"data: 1\n\n")),
        (b"HTTP/1.1 400 x\r\nContent-Length: 5\r\n\r\n",),
    ],
    ids=["before the answer", "within its head", "after its head", "within", "within an error"],
)
async def test_a_client_that_leaves_ends_the_work_of_the_engine(sent: tuple[bytes, ...]) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]):
        engine.next_ones = [hangs(*sent)]
        async with client_of(proxy) as client:
            client.send(post())
            await eventually(lambda: len(engine.received) == 1)
            if sent[:1] == (STREAM_HEAD,):
                await client.head()
        await eventually(lambda: not engine.open_connections)
        await proxy.settles()
        node = proxy.node("a")
        assert (node.state, node.failures, node.turns) == (NodeState.READY, 0, 0)


USAGE = b'{"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 32}}'
LONG = b'"output": "%b"' % (b"x" * 50_000)
COMPLETED = (
    b'event: response.completed\ndata: {"type":"response.completed","response":{%b,"usage":%b}}\n\n'
)
LAST_EVENTS = {
    "a chat": b'data: {}\n\ndata: {"usage": ' + USAGE + b"}\n\ndata: [DONE]\n\n",
    "a chat with CRLF": b'data: {"usage": ' + USAGE + b"}\r\n\r\ndata: [DONE]\r\n\r\n",
    "a response": COMPLETED % (b'"output": []', USAGE.replace(b"prompt", b"input")),
    "a long response": COMPLETED % (LONG, USAGE.replace(b"prompt", b"input")),
}


@pytest.mark.parametrize("name", LAST_EVENTS)
async def test_a_client_that_leaves_after_the_last_event_was_served(name: str) -> None:
    """The end that HTTP wants comes from servers a little later, and many do not wait for it."""
    registry = CollectorRegistry()
    async with running_engine() as engine, running_proxy([engine], registry=registry) as proxy:
        events = LAST_EVENTS[name]
        engine.next_ones = [_ends_late(STREAM_HEAD + chunk(events))]
        async with client_of(proxy) as client:
            client.send(post(fields=b"X-Session-ID: s\r\n"))
            await client.head()
            await client.reader.readuntil(events[-40:])
        await proxy.settles()
        node = proxy.node("a")
        assert (node.turns, node.prompt_tokens, node.cached_tokens) == (1, 40, 32)
        [(key, account)] = proxy.dispatcher.ledger.accounts.items()
        assert (key.conversation, account.sums.delivered) == ("s", 32)
        assert registry.get_sample_value("prefix_cache_router_http_clients_gone_total") == 0


NOT_THE_LAST = {
    "an event": b'data: {"choices": []}\n\n',
    "the beginning of the last": b"data: {}\n\ndata: [DONE]",
    "its words in a model's mouth": b'data: {"content": "\\ndata: [DONE]\\n\\n"}\n\n',
    "its words in a torn event": b'data: {"content": "data: [DONE]\n\n',
    "a response that begins": b'data: {"type":"response.created","response":{"usage":null}}\n\n',
}


@pytest.mark.parametrize("name", NOT_THE_LAST)
async def test_a_client_that_leaves_before_the_last_event_was_not(name: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]):
        engine.next_ones = [hangs(STREAM_HEAD + chunk(NOT_THE_LAST[name]))]
        async with client_of(proxy) as client:
            client.send(post())
            await client.head()
            await client.chunk()
        await proxy.settles()
        assert proxy.node("a").turns == 0


def _ends_late(stream: bytes) -> Behaviour:
    async def behave(engine: asyncio.Transport) -> None:
        engine.write(stream)
        await asyncio.sleep(0.02)
        engine.write(STREAM_END)

    return behave


async def test_a_client_that_leaves_while_its_node_is_connected_to_is_forgotten() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        silent = Engine(f"http://127.0.0.1:{full.getsockname()[1]}")
        async with running_proxy([silent]) as proxy:
            tasks = len(asyncio.all_tasks())
            async with client_of(proxy) as client:
                client.send(post())
                await eventually(lambda: proxy.load["a"][0] == 1)
            await proxy.settles()
            await eventually(lambda: len(asyncio.all_tasks()) == tasks)
            assert proxy.node("a").failures == 0


async def test_a_client_that_leaves_takes_its_other_requests_along() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]):
        engine.otherwise = hangs()
        async with client_of(proxy) as client:
            client.send(post(chat_body("1")) + post(chat_body("2")))
            await eventually(lambda: len(engine.received) == 1)
            # With a request in reserve nothing is read: a reset is what tells.
            client.writer.transport.abort()
            engine.open_connections[0].abort()
        await proxy.settles()
        assert engine.bodies == [chat_body("1")]


async def test_an_engine_waits_for_a_client_that_reads_slowly() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [answers(whole(LARGE))]
        await _asks_without_reading(client)
        await eventually(lambda: len(engine.open_connections) == 1)
        [transport] = engine.open_connections
        unsent = await _level_of(transport)
        assert unsent > 10_000_000
        client.transport.resume_reading()
        assert (await client.answer()).body == LARGE
        await proxy.settles()
        assert proxy.node("a").turns == 1


async def test_an_answer_waits_for_the_one_before_it_to_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To send that one can prove too much when the next request is under way already."""
    connections: list[ClientConnection] = []
    take_note = HttpApi.opened

    def opened(api: HttpApi, connection: ClientConnection) -> None:
        connections.append(connection)
        take_note(api, connection)

    monkeypatch.setattr(HttpApi, "opened", opened)
    go_on = asyncio.Event()
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        engine.next_ones = [waits_for(go_on, answers(whole(LARGE)))]
        answer = asyncio.ensure_future(client.ask(post()))
        await eventually(lambda: len(engine.received) == 1)
        [connection] = connections
        connection.pause_writing()
        go_on.set()
        await eventually(lambda: engine.open_connections[0].get_write_buffer_size() > 0)
        assert await _level_of(engine.open_connections[0]) > 10_000_000
        connection.resume_writing()
        assert (await answer).body == LARGE
        await proxy.settles()


async def test_what_was_answered_before_a_client_ended_its_side_arrives() -> None:
    """In one turn of the loop: answers to two clients, and the end of the second one."""
    async with (
        proxy_and_engines(1) as (proxy, [engine]),
        client_of(proxy) as one,
        client_of(proxy) as other,
    ):
        engine.otherwise = hangs()
        for count, client in enumerate((one, other), 1):
            client.send(post())
            await eventually(lambda count=count: len(engine.received) == count)  # type: ignore[misc]
        for transport in engine.open_connections:
            transport.write(whole(b"{}"))
        with socket.socket(fileno=os.dup(other.transport.get_extra_info("socket").fileno())) as end:
            end.shutdown(socket.SHUT_WR)
        assert (await other.answer()).body == b"{}"
        assert await other.is_closed()
        assert (await one.answer()).body == b"{}"
        await proxy.settles()


async def test_a_client_that_does_not_read_at_all_is_given_up() -> None:
    async with (
        proxy_and_engines(1, idle_timeout_s=0.2) as (proxy, [engine]),
        client_of(proxy) as client,
    ):
        engine.next_ones = [answers(whole(LARGE))]
        await _asks_without_reading(client)
        await eventually(lambda: len(engine.received) == 1)
        await eventually(lambda: not engine.open_connections)
        await proxy.settles()
        # It is not the node's fault.
        assert proxy.node("a").failures == 0
        client.transport.resume_reading()
        assert not (await client.answer()).is_whole


async def test_an_answer_given_up_is_no_whole_one_to_a_client_of_http_1_0() -> None:
    """It was told no length: a clean end would be the end of the answer."""
    registry = CollectorRegistry()
    async with (
        running_engine() as engine,
        running_proxy([engine], idle_timeout_s=0.2, registry=registry) as proxy,
        client_of(proxy) as client,
    ):
        chunks = [chunk(b"x" * 1_000_000)] * 30
        engine.next_ones = [answers(STREAM_HEAD, *chunks, STREAM_END)]
        client.transport.pause_reading()
        client.send(post().replace(b"HTTP/1.1", b"HTTP/1.0"))
        await eventually(lambda: len(engine.received) == 1)
        await eventually(lambda: not engine.open_connections)
        await proxy.settles()
        client.transport.resume_reading()
        with pytest.raises(ConnectionResetError):
            await client.reader.read()
        assert registry.get_sample_value("prefix_cache_router_http_cut_total") == 1
        assert registry.get_sample_value("prefix_cache_router_http_clients_gone_total") == 0


async def test_the_other_clients_do_not_wait_for_a_slow_one() -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as slow:
        engine.next_ones = [answers(whole(LARGE))]
        await _asks_without_reading(slow)
        await eventually(lambda: len(engine.received) == 1)
        async with client_of(proxy) as other:
            for _ in range(5):
                assert (await other.ask(post())).status == 200


async def _asks_without_reading(client: Client) -> None:
    client.transport.pause_reading()
    client.send(post())
    await asyncio.sleep(0)


async def _level_of(transport: asyncio.Transport) -> int:
    """What stays unsent once nothing moves any more."""
    before, now = -1, transport.get_write_buffer_size()
    while before != now:
        await asyncio.sleep(0.1)
        before, now = now, transport.get_write_buffer_size()
    return now
