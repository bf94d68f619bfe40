"""A proxy before engines, and a client that speaks to it byte by byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from prometheus_client import CollectorRegistry

from prefix_cache.client import NodeState
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.decisions import Decisions
from router.directory import Directory
from router.dispatcher import Dispatcher
from router.http_server import serving_http
from router.nodes import Node
from router.prompts import BodyReader
from router.status import Status
from tests.router.http.engines import Engine, running_engine
from tests.router.http.eventually import DEADLINE_S, eventually

CHAT = "/v1/chat/completions"


@dataclass
class Proxy:
    """A running proxy, and what it is made of."""

    port: int
    dispatcher: Dispatcher
    decisions: Decisions

    def node(self, name: str) -> Node:
        return self.dispatcher.node(name)

    @property
    def load(self) -> dict[str, tuple[int, int, int, int]]:
        """Of each node: turns in flight, their tokens, queued prefill, decoding."""
        return {
            node.name: (node.in_flight, node.in_flight_tokens, node.queued_prefill, node.decoding)
            for node in self.dispatcher.nodes()
        }

    async def settles(self) -> None:
        """Wait until no node has load."""
        await eventually(lambda: not any(map(any, self.load.values())), lambda: self.load)


@asynccontextmanager
async def running_proxy(
    engines: Sequence[Engine],
    *,
    directory: Directory | None = None,
    registry: CollectorRegistry | None = None,
    grace_s: float = 5.0,
    **settings: Any,
) -> AsyncIterator[Proxy]:
    """A proxy in this event loop before ready engines, named a, b and so on."""
    specs = tuple(
        NodeSpec(name, url=engine.url) for name, engine in zip("abcd", engines, strict=False)
    )
    pool = PoolConfig(nodes=specs, models=("m",))
    config = RouterConfig(pools=(pool,), http="127.0.0.1:0", **settings)
    dispatcher = Dispatcher(config)
    for node in dispatcher.nodes():
        dispatcher.node_answered(node, 1)
        node.models = frozenset({"m"})
    decisions = Decisions(max_decisions=100)
    async with serving_http(
        dispatcher,
        BodyReader(dispatcher.pools),
        decisions,
        config,
        Status(dispatcher, decisions, registry or CollectorRegistry()),
        directory=directory,
        grace_s=grace_s,
    ) as url:
        yield Proxy(int(url.rpartition(":")[2]), dispatcher, decisions)


@asynccontextmanager
async def proxy_and_engines(
    count: int, **settings: Any
) -> AsyncIterator[tuple[Proxy, list[Engine]]]:
    async with AsyncExitStack() as stack:
        engines = [await stack.enter_async_context(running_engine()) for _ in range(count)]
        yield await stack.enter_async_context(running_proxy(engines, **settings)), engines


def is_failed(proxy: Proxy, name: str) -> bool:
    return proxy.node(name).state is NodeState.FAILED


# --- the client ---------------------------------------------------------------------------


IN_EVERY_ANSWER = {"x-request-id", "x-prefix-cache-node", "x-prefix-cache-reason"}


def chat_body(text: str = "hello", **fields: object) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "m", "messages": messages, **fields}).encode()


def post(body: bytes | None = None, path: str = CHAT, fields: bytes = b"") -> bytes:
    """A request with a body of its length; ``fields`` are more lines of its head."""
    body = chat_body() if body is None else body
    return b"POST %b HTTP/1.1\r\nHost: router\r\n%bContent-Length: %d\r\n\r\n%b" % (
        path.encode(),
        fields,
        len(body),
        body,
    )


def get(path: str, fields: bytes = b"") -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: router\r\n%b\r\n" % (path.encode(), fields)


@dataclass(frozen=True)
class Got:
    """An answer.  ``is_whole``: its framing says that nothing is missing."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool = True

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = self.json["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.transport = cast("asyncio.Transport", writer.transport)

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, request: bytes) -> Got:
        self.send(request)
        return await self.answer()

    async def answer(self, *, to_head: bool = False) -> Got:
        """Read an answer, as far as it comes.  Fails when there is none."""
        status, headers = await self.head()
        if to_head or status in (204, 304):
            return Got(status, headers, b"")
        if "content-length" in headers:
            wanted = int(headers["content-length"])
            body = await self._up_to(wanted)
            return Got(status, headers, body, len(body) == wanted)
        if headers.get("transfer-encoding") == "chunked":
            return Got(status, headers, *await self._chunks())
        try:
            return Got(status, headers, await self.reader.read())
        except ConnectionResetError:
            return Got(status, headers, b"", is_whole=False)

    async def head(self) -> tuple[int, dict[str, str]]:
        async with asyncio.timeout(DEADLINE_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")[:-2]
        assert first.startswith("HTTP/1.1 ")
        headers = dict(line.split(": ", 1) for line in lines)
        assert len(headers) == len(lines), "a field came twice"
        status = int(first.split(" ")[1])
        assert status < 200 or headers.keys() >= IN_EVERY_ANSWER
        return status, headers

    async def chunk(self) -> bytes:
        """Read one chunk; empty for the last one."""
        async with asyncio.timeout(DEADLINE_S):
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            return (await self.reader.readexactly(size + 2))[:-2]

    async def is_closed(self) -> bool:
        """Wait for the end of the connection; False when something comes before it."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()

    async def _up_to(self, count: int) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            try:
                return await self.reader.readexactly(count)
            except asyncio.IncompleteReadError as error:
                return error.partial
            except ConnectionResetError:
                return b""

    async def _chunks(self) -> tuple[bytes, bool]:
        body = b""
        while True:
            try:
                piece = await self.chunk()
            except (asyncio.IncompleteReadError, ConnectionResetError):
                return body, False
            if not piece:
                return body, True
            body += piece


@asynccontextmanager
async def client_of(proxy: Proxy) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", proxy.port))
    try:
        yield client
    finally:
        client.close()
