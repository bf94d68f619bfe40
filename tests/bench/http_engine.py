"""Engines that answer at once, for measuring what stands before them: ``... http_engine 4``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import cast

import uvloop

_USAGE = '"usage":{"prompt_tokens":256,"completion_tokens":16,"total_tokens":272}'
_PLAIN = (
    '{"id":"c","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,'
    '"message":{"role":"assistant","content":"Forty two."},"finish_reason":"stop"}],' + _USAGE + "}"
).encode()
_MODELS = b'{"object":"list","data":[{"id":"bench","object":"model"}]}'
_ITEM = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"bench","choices":'
    b'[{"index":0,"delta":{"content":"word "},"finish_reason":null}]}\n\n'
)
_ITEMS = [_ITEM] * 16 + [b"data: [DONE]\n\n"]


def _whole(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


_STREAM = [
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    *(b"%x\r\n%b\r\n" % (len(item), item) for item in _ITEMS),
    b"0\r\n\r\n",
]


class _Engine(asyncio.Protocol):
    """One connection: answers each request whose body is complete."""

    def __init__(self) -> None:
        self._received = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end]).lower()
            _, _, after = head.partition(b"content-length:")
            size = end + 4 + int(after.split(b"\r\n", 1)[0] or b"0")
            if len(self._received) < size:
                return
            body = bytes(self._received[end + 4 : size])
            del self._received[:size]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"get"):
            self._transport.write(_whole(_MODELS))
        elif body.startswith(b'{"stream":true'):
            for piece in _STREAM:  # as an engine does: one small write for each item
                self._transport.write(piece)
        else:
            self._transport.write(_whole(_PLAIN))


async def _serve(count: int) -> None:
    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(_Engine, "127.0.0.1", 0) for _ in range(count)]
    ports = [server.sockets[0].getsockname()[1] for server in servers]
    print(json.dumps({"addresses": [f"http://127.0.0.1:{port}" for port in ports]}), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
