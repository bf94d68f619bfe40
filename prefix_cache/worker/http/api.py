"""The paths of a worker: the API of OpenAI, and some of vLLM."""

from __future__ import annotations

import asyncio

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from prefix_cache.errors import Unavailable
from prefix_cache.openai_api.answers import tokenized
from prefix_cache.openai_api.bodies import ChatBody, TokenizeBody, read_body
from prefix_cache.openai_api.errors import check_model, errors_as_json
from prefix_cache.openai_api.json_response import json_response
from prefix_cache.openai_api.listening import MAX_BODY_BYTES
from prefix_cache.openai_api.models import model_routes
from prefix_cache.worker.async_engine import AsyncEngine
from prefix_cache.worker.http.answering import Answering
from prefix_cache.worker.http.completion_body import CompletionBody
from prefix_cache.worker.http.forms import ChatForm, CompletionForm
from prefix_cache.worker.http.metrics import EngineMetrics, RequestMetrics
from prefix_cache.worker.http.prompts import Prompts
from prefix_cache.worker.http.requests import naming_fields, refuse_unsupported
from prefix_cache.worker.setup import Worker


def make_app(worker: Worker, engine: AsyncEngine, seed: int | None) -> web.Application:
    """Return what serves all paths; ``engine`` runs the worker's."""
    registry = CollectorRegistry()
    registry.register(EngineMetrics(worker))
    prompts = Prompts(worker.model, worker.engine.limits.max_model_len)
    answering = Answering(worker.name, prompts, engine, RequestMetrics(registry), seed)
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[errors_as_json])
    app.add_routes(
        [
            web.post("/v1/chat/completions", answering.generating(ChatBody, ChatForm)),
            web.post("/v1/completions", answering.generating(CompletionBody, CompletionForm)),
            *model_routes(worker.name, worker.engine.limits.max_model_len),
            web.post("/tokenize", _tokenizing(worker, prompts)),
            web.get("/health", _health(engine)),
            web.get("/metrics", _metrics(registry)),
        ]
    )
    return app


def _tokenizing(worker: Worker, prompts: Prompts) -> Handler:
    def tokens_of(body: TokenizeBody) -> list[int]:
        if body.prompt is not None:
            return prompts.of_text(body.prompt, bos=body.add_special_tokens)
        return prompts.of_chat(body.messages or [], body.tools)

    async def tokenize(request: web.Request) -> web.Response:
        given = await request.read()
        body = read_body(TokenizeBody, given)
        check_model(body.model, worker.name)
        refuse_unsupported(given)
        with naming_fields(body):
            token_ids = await asyncio.to_thread(tokens_of, body)
        return json_response(tokenized(token_ids, worker.engine.limits.max_model_len))

    return tokenize


def _health(engine: AsyncEngine) -> Handler:
    async def health(request: web.Request) -> web.Response:
        if not engine.is_well:
            raise Unavailable("the engine has failed")
        engine.engine.check_not_replaced()
        return json_response({"status": "ok"})

    return health


def _metrics(registry: CollectorRegistry) -> Handler:
    async def metrics(request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
        )

    return metrics
