"""A test engine in this event loop, and plain HTTP to it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from prefix_cache.testing import Engine, EngineConfig, running_engine

DEADLINE_S = 20.0


class Client:
    """Posts JSON to one engine; ``chat`` is a chat of messages, by the roles in turn."""

    def __init__(self, engine: Engine, http: aiohttp.ClientSession) -> None:
        self.engine = engine
        self.http = http

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of the answer."""
        async with self.http.post(path, json=body) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str) -> Any:
        async with self.http.get(path) as answer:
            assert answer.status == 200
            return await answer.json()

    async def chat(self, *contents: str, **fields: Any) -> Any:
        """The answer to a chat in which user and assistant take turns."""
        status, answer = await self.post("/v1/chat/completions", chat_body(*contents, **fields))
        assert status == 200, answer
        return answer


def chat_body(*contents: str, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)]
    return {"model": "test", "messages": messages, **fields}


def text_of(answer: Any) -> str:
    text: str = answer["choices"][0]["message"]["content"]
    return text


def cached(answer: Any) -> int:
    count: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


@asynccontextmanager
async def engine_client(**settings: Any) -> AsyncIterator[Client]:
    """A client of a fresh engine with these settings."""
    async with (
        running_engine(EngineConfig(**settings)) as engine,
        aiohttp.ClientSession(engine.url) as http,
    ):
        yield Client(engine, http)


async def until(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; fail when it does not in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
