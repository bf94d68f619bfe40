"""Chats over keep-alive connections, and how long each answer took, for measuring a proxy.

``python -m tests.bench.http_load http://127.0.0.1:8080 '{"connections": 1, ...}'`` prints a JSON
object of ``Load`` measured.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import cast
from urllib.parse import urlsplit

import numpy as np
import uvloop

_WORDS = "alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike november "


@dataclass(frozen=True)
class Load:
    """``requests`` in all; each connection plays one conversation of ``turns`` after another.

    A question and an answer have ``size`` bytes each, and every conversation begins with the
    same system prompt of ``shared`` bytes.
    """

    connections: int = 1
    requests: int = 2_000
    size: int = 900
    shared: int = 0
    turns: int = 1
    stream: bool = False


def _text(size: int, salt: int) -> str:
    return (f"{salt} " + _WORDS * (size // len(_WORDS) + 1))[:size]


class _Connection(asyncio.Protocol):
    """Plays conversations, one request at a time, until ``numbers`` has no more."""

    def __init__(self, load: Load, host: str, numbers: itertools.count[int]) -> None:
        self._load = load
        self._host = host
        self._numbers = numbers
        self._turn = 0
        self._received = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_byte_s: list[float] = []
        self.whole_s: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(ConnectionError("the connection ended before the load"))

    def _ask(self) -> None:
        number = next(self._numbers)
        if number >= self._load.requests:
            self.over.set_result(None)
            self._transport.close()
            return
        if self._turn % self._load.turns == 0:
            self._conversation = number
            self._messages = [{"role": "system", "content": _text(self._load.shared, 0)}]
        self._turn += 1
        self._messages.append({"role": "user", "content": _text(self._load.size, number + 1)})
        fields = {"stream": self._load.stream, "model": "bench", "messages": self._messages}
        body = json.dumps(fields, separators=(",", ":")).encode()
        self._messages.append({"role": "assistant", "content": _text(self._load.size, 0)})
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nhost: {self._host}\r\n"
            f"content-type: application/json\r\nx-session-id: c{self._conversation}\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._asked_at = time.perf_counter()
        self._began_at = 0.0
        self._transport.write(head.encode() + body)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._began_at = self._began_at or now
        self._received += data
        if not _is_whole(self._received):
            return
        if not self._received.startswith(b"HTTP/1.1 200"):
            self.over.set_exception(ConnectionError(f"answered {self._received[:300]!r}"))
            return
        self._received = b""
        self.first_byte_s.append(self._began_at - self._asked_at)
        self.whole_s.append(now - self._asked_at)
        self._ask()


def _is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    _, is_sized, after = head.lower().partition(b"content-length:")
    if is_sized:
        return len(body) >= int(after.split(b"\r\n", 1)[0])
    return bool(end) and body.endswith(b"0\r\n\r\n")


async def play(url: str, load: Load) -> dict[str, float]:
    """Play a load; microseconds of the whole answer and of its first byte, and per request."""
    place = urlsplit(url)
    numbers = itertools.count()
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [
        await loop.create_connection(
            lambda: _Connection(load, place.netloc, numbers), place.hostname or "", place.port or 80
        )
        for _ in range(load.connections)
    ]
    connections = [connection for _, connection in made]
    await asyncio.gather(*(connection.over for connection in connections))
    took = time.perf_counter() - began
    whole = np.concatenate([connection.whole_s for connection in connections]) * 1e6
    first = np.concatenate([connection.first_byte_s for connection in connections]) * 1e6
    return {
        "whole p50": float(np.percentile(whole, 50)),
        "whole p99": float(np.percentile(whole, 99)),
        "first byte p50": float(np.percentile(first, 50)),
        "per request": took / load.requests * 1e6,
    }


def arguments(url: str, load: Load) -> tuple[str, ...]:
    """What runs this as a process."""
    return (sys.executable, "-m", "tests.bench.http_load", url, json.dumps(asdict(load)))


if __name__ == "__main__":
    print(json.dumps(uvloop.run(play(sys.argv[1], Load(**json.loads(sys.argv[2]))))))
