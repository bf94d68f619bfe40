"""The paths of a test engine: the API of OpenAI, some of vLLM, and those that control faults."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from prefix_cache.errors import InvalidArgument
from prefix_cache.plain_template import render
from prefix_cache.testing.answering import Answering, cut_off
from prefix_cache.testing.bodies import (
    ChatBody,
    CompletionBody,
    EmbeddingBody,
    ResponseBody,
    TokenizeBody,
    read_body,
)
from prefix_cache.testing.chat import Chat
from prefix_cache.testing.completions import Completion
from prefix_cache.testing.config import EngineConfig
from prefix_cache.testing.counts import Counts, registry
from prefix_cache.testing.embeddings import embeddings
from prefix_cache.testing.faults import Faults, FaultSwitch
from prefix_cache.testing.openai_errors import errors_as_json, no_model
from prefix_cache.testing.responses import Response
from prefix_cache.testing.worker import Worker

_CONTROL = ("/faults", "/requests")
_MAX_BODY_BYTES = 64 * 1024 * 1024


def make_app(
    config: EngineConfig, worker: Worker, faults: FaultSwitch, counts: Counts
) -> web.Application:
    """Return what serves all paths."""
    answering = Answering(config, worker, faults, counts)
    generating = answering.generating
    models, control = _Models(config), _Control(faults, counts)
    app = web.Application(
        client_max_size=_MAX_BODY_BYTES, middlewares=[errors_as_json, control.refuse]
    )
    app.add_routes(
        [
            web.post("/v1/chat/completions", generating(ChatBody, Chat)),
            web.post("/v1/completions", generating(CompletionBody, Completion)),
            web.post("/v1/responses", generating(ResponseBody, Response)),
            web.post("/v1/embeddings", answering.answering(EmbeddingBody, _embed)),
            web.get("/v1/models", models.all),
            web.get("/v1/models/{model}", models.one),
            web.post("/tokenize", models.tokenize),
            web.get("/health", control.health),
            web.get("/metrics", control.metrics),
            web.get("/faults", control.get_faults),
            web.post("/faults", control.set_faults),
            web.get("/requests", control.get_requests),
        ]
    )
    return app


async def _embed(request: web.Request, body: EmbeddingBody, faults: Faults) -> web.Response:
    return _json(embeddings(body))


class _Models:
    def __init__(self, config: EngineConfig) -> None:
        self._model = config.model
        self._max_tokens = config.num_blocks * config.block_size
        self._created = int(time.time())

    async def all(self, request: web.Request) -> web.Response:
        return _json({"object": "list", "data": [self._card()]})

    async def one(self, request: web.Request) -> web.Response:
        model = request.match_info["model"]
        if model != self._model:
            raise no_model(model, self._model)
        return _json(self._card())

    async def tokenize(self, request: web.Request) -> web.Response:
        body = read_body(TokenizeBody, await request.read())
        if body.model != self._model:
            raise no_model(body.model, self._model)
        text = body.prompt
        if text is None:
            text = render(
                body.messages,
                body.tools or [],
                add_generation_prompt=body.add_generation_prompt,
            )
        tokens = list(text.encode())
        return _json({"count": len(tokens), "max_model_len": self._max_tokens, "tokens": tokens})

    def _card(self) -> dict[str, Any]:
        return {
            "id": self._model,
            "object": "model",
            "created": self._created,
            "owned_by": "prefix-cache",
            "max_model_len": self._max_tokens,
        }


class _Control:
    def __init__(self, faults: FaultSwitch, counts: Counts) -> None:
        self._faults = faults
        self._counts = counts
        self._registry = registry(counts)

    @web.middleware
    async def refuse(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._faults.now.refuse and request.path not in _CONTROL:
            self._faults.take()
            raise cut_off(request)
        return await handler(request)

    async def health(self, request: web.Request) -> web.Response:
        return _json({"status": "ok"})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry),
            headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4},
        )

    async def get_faults(self, request: web.Request) -> web.Response:
        return _json(self._faults.now)

    async def set_faults(self, request: web.Request) -> web.Response:
        try:
            faults = msgspec.json.decode(await request.read(), type=Faults)
        except msgspec.DecodeError as error:
            raise InvalidArgument(f"faults cannot be used: {error}") from None
        self._faults.set(faults)
        return _json(self._faults.now)

    async def get_requests(self, request: web.Request) -> web.Response:
        return _json(self._counts)


def _json(document: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(document), content_type="application/json")
