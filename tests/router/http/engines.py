"""An engine as far as the wire goes: it records what it gets and answers what it is told to."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

from tests.router.http.eventually import eventually

_LENGTH = re.compile(rb"\r\ncontent-length: *([0-9]+)", re.IGNORECASE)

Behaviour = Callable[[asyncio.Transport], Awaitable[None]]


@dataclass(eq=False)
class Engine:
    """One engine.  Requests take the ``next_ones`` of behaviours in turn, then ``otherwise``."""

    url: str = ""
    received: list[bytes] = field(default_factory=list)
    """Requests, as they came."""
    next_ones: list[Behaviour] = field(default_factory=list)
    otherwise: Behaviour = field(default_factory=lambda: answers(chat_answer()))
    takes_connections: bool = True
    """Otherwise it closes them at once."""
    connections: int = 0
    """That were ever made."""
    open_connections: list[asyncio.Transport] = field(default_factory=list)

    @property
    def heads(self) -> list[bytes]:
        return [request.partition(b"\r\n\r\n")[0] for request in self.received]

    @property
    def bodies(self) -> list[bytes]:
        return [request.partition(b"\r\n\r\n")[2] for request in self.received]


class _Connection(asyncio.Protocol):
    """Whatever an engine does for a request ends when its connection does."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._buffer = b""
        self._behaving: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._engine.connections += 1
        self._engine.open_connections.append(self._transport)
        if not self._engine.takes_connections:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, _ = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        size = len(head) + len(end) + (int(length[1]) if length else 0)
        if end and len(self._buffer) >= size:
            request, self._buffer = self._buffer[:size], self._buffer[size:]
            engine = self._engine
            engine.received.append(request)
            behave = engine.next_ones.pop(0) if engine.next_ones else engine.otherwise
            self._behaving = asyncio.ensure_future(behave(self._transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.open_connections.remove(self._transport)
        if self._behaving is not None:
            self._behaving.cancel()


@asynccontextmanager
async def running_engine() -> AsyncIterator[Engine]:
    """An engine, to which no connection may be left at the end."""
    engine = Engine()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(engine), "127.0.0.1", 0)
    engine.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield engine
        await eventually(lambda: not engine.open_connections)
    finally:
        server.close()


# --- what it answers ----------------------------------------------------------------------


def chat_answer(*, prompt_tokens: int = 40, cached_tokens: int = 0) -> bytes:
    usage = {
        "prompt_tokens": prompt_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
    return whole(json.dumps({"object": "chat.completion", "choices": [], "usage": usage}).encode())


def whole(body: bytes, status: str = "200 OK", fields: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status.encode(),
        fields,
        len(body),
        body,
    )


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
STREAM_END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


# --- how it behaves -----------------------------------------------------------------------


def answers(*pieces: bytes) -> Behaviour:
    """Send the pieces, one after the other."""

    async def behave(engine: asyncio.Transport) -> None:
        for piece in pieces:
            engine.write(piece)
            await asyncio.sleep(0)

    return behave


def closes(*pieces: bytes) -> Behaviour:
    """Send the pieces and close."""

    async def behave(engine: asyncio.Transport) -> None:
        await answers(*pieces)(engine)
        engine.close()

    return behave


def resets(*pieces: bytes) -> Behaviour:
    """Send the pieces and reset the connection."""

    async def behave(engine: asyncio.Transport) -> None:
        await answers(*pieces)(engine)
        await asyncio.sleep(0.01)
        engine.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        engine.abort()

    return behave


def hangs(*pieces: bytes) -> Behaviour:
    """Send the pieces and then nothing, until the other side is gone."""

    async def behave(engine: asyncio.Transport) -> None:
        await answers(*pieces)(engine)
        await asyncio.Event().wait()

    return behave


def waits_for(event: asyncio.Event, behaviour: Behaviour, *before: bytes) -> Behaviour:
    """Send the pieces ``before``, and behave so once ``event`` is set."""

    async def behave(engine: asyncio.Transport) -> None:
        await answers(*before)(engine)
        await event.wait()
        await behaviour(engine)

    return behave
