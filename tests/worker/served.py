"""Workers on a real, small model that serve in this event loop, and clients of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai

from prefix_cache.worker.config import WorkerConfig
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.engine_config import EngineConfig
from prefix_cache.worker.serving import serving_worker

MODEL = "stories260K"
TEXT, CHAT = "/v1/completions", "/v1/chat/completions"


class Client:
    """One worker as its users see it, and its engine."""

    def __init__(
        self, url: str, engine: Engine, http: aiohttp.ClientSession, by_openai: openai.AsyncOpenAI
    ) -> None:
        self.url = url
        self.engine = engine
        self.http = http
        self.openai = by_openai

    async def post(self, path: str, **body: Any) -> tuple[int, Any]:
        """Status and JSON of the answer."""
        async with self.http.post(path, json={"model": MODEL, **body}) as answer:
            return answer.status, await answer.json()

    async def complete(
        self, prompt: str | list[int] | list[str] | list[list[int]], **body: Any
    ) -> Any:
        """The answer to a prompt: the likeliest, for as long as was asked for."""
        fields = {"temperature": 0, "ignore_eos": True, "return_token_ids": True, **body}
        status, answer = await self.post(TEXT, prompt=prompt, **fields)
        assert status == 200, answer
        return answer


def cached(answer: Any) -> int:
    count: int = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


@asynccontextmanager
async def served(
    data: Path, engine: EngineConfig | None = None, **settings: Any
) -> AsyncIterator[Client]:
    """A client of a fresh worker with these settings."""
    config = WorkerConfig(
        **{"model": data / "models" / MODEL, "num_blocks": 256, **settings},
        engine=engine or EngineConfig(),
    )
    async with (
        serving_worker(config) as serving,
        aiohttp.ClientSession(serving.url) as http,
        openai.AsyncOpenAI(base_url=f"{serving.url}/v1", api_key="none", max_retries=0) as client,
    ):
        yield Client(serving.url, serving.async_engine.engine, http, client)
