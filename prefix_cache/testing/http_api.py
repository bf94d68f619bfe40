"""The paths of a test engine: the API of OpenAI, some of vLLM, and those that control faults."""

from __future__ import annotations

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from prefix_cache.errors import InvalidArgument
from prefix_cache.openai_api.answers import tokenized
from prefix_cache.openai_api.bodies import TokenizeBody, read_body
from prefix_cache.openai_api.errors import check_model, errors_as_json
from prefix_cache.openai_api.json_response import json_response
from prefix_cache.openai_api.listening import MAX_BODY_BYTES
from prefix_cache.openai_api.models import model_routes
from prefix_cache.plain_template import render
from prefix_cache.testing.answering import Answering, cut_off
from prefix_cache.testing.bodies import ChatBody, CompletionBody, EmbeddingBody, ResponseBody
from prefix_cache.testing.chat import Chat
from prefix_cache.testing.completions import Completion
from prefix_cache.testing.config import EngineConfig
from prefix_cache.testing.counts import Counts, registry
from prefix_cache.testing.embeddings import embeddings
from prefix_cache.testing.faults import CutOff, Faults, FaultSwitch
from prefix_cache.testing.responses import Response
from prefix_cache.testing.worker import Worker

_CONTROL = ("/faults", "/requests")


def make_app(
    config: EngineConfig, worker: Worker, faults: FaultSwitch, counts: Counts
) -> web.Application:
    """Return what serves all paths."""
    answering = Answering(config, worker, faults, counts)
    generating = answering.generating
    control = _Control(faults, counts)
    max_tokens = config.num_blocks * config.block_size
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[errors_as_json, control.cut])
    app.add_routes(
        [
            web.post("/v1/chat/completions", generating(ChatBody, Chat)),
            web.post("/v1/completions", generating(CompletionBody, Completion)),
            web.post("/v1/responses", generating(ResponseBody, Response)),
            web.post("/v1/embeddings", answering.answering(EmbeddingBody, _embed)),
            *model_routes(config.model, max_tokens),
            web.post("/tokenize", _tokenizing(config.model, max_tokens)),
            web.get("/health", control.health),
            web.get("/metrics", control.metrics),
            web.get("/faults", control.get_faults),
            web.post("/faults", control.set_faults),
            web.get("/requests", control.get_requests),
        ]
    )
    return app


async def _embed(request: web.Request, body: EmbeddingBody, faults: Faults) -> web.Response:
    return json_response(embeddings(body))


def _tokenizing(model: str, max_tokens: int) -> Handler:
    async def tokenize(request: web.Request) -> web.Response:
        body = read_body(TokenizeBody, await request.read())
        check_model(body.model, model)
        text = body.prompt
        if text is None:
            text = render(
                body.messages or [],
                body.tools or [],
                add_generation_prompt=body.add_generation_prompt,
            )
        return json_response(tokenized(list(text.encode()), max_tokens))

    return tokenize


class _Control:
    def __init__(self, faults: FaultSwitch, counts: Counts) -> None:
        self._faults = faults
        self._counts = counts
        self._registry = registry(counts)

    @web.middleware
    async def cut(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if self._faults.now.refuse and request.path not in _CONTROL:
                self._faults.take()
                raise cut_off(request)
            return await handler(request)
        except CutOff:
            return web.Response()  # to nobody

    async def health(self, request: web.Request) -> web.Response:
        return json_response({"status": "ok"})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry),
            headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4},
        )

    async def get_faults(self, request: web.Request) -> web.Response:
        return json_response(self._faults.now)

    async def set_faults(self, request: web.Request) -> web.Response:
        try:
            faults = msgspec.json.decode(await request.read(), type=Faults)
        except msgspec.DecodeError as error:
            raise InvalidArgument(f"faults cannot be used: {error}") from None
        self._faults.set(faults)
        return json_response(self._faults.now)

    async def get_requests(self, request: web.Request) -> web.Response:
        return json_response(self._counts)
