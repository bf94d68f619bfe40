"""Answers requests: whole, or as a stream."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from prefix_cache.errors import PrefixCacheError
from prefix_cache.openai_api.answers import DONE, Document, event, usage
from prefix_cache.openai_api.bodies import GeneratingBody, read_body
from prefix_cache.openai_api.errors import ApiError, check_model
from prefix_cache.openai_api.json_response import json_response
from prefix_cache.openai_api.request_id import request_id
from prefix_cache.worker.async_engine import AsyncEngine
from prefix_cache.worker.http.forms import Form, WholeAnswer
from prefix_cache.worker.http.metrics import ObservedRequest, RequestMetrics
from prefix_cache.worker.http.prompts import Prompts
from prefix_cache.worker.http.requests import naming_fields, refuse_unsupported, sampling_params
from prefix_cache.worker.request import GenerationRequest, RequestOutput, Usage

_Body = TypeVar("_Body", bound=GeneratingBody)


class Answering:
    """Makes the handlers of the paths that generate, for the model served as ``name``.

    Requests without a seed get one that follows from ``seed``, by chance if that is None.
    """

    def __init__(
        self,
        name: str,
        prompts: Prompts,
        engine: AsyncEngine,
        metrics: RequestMetrics,
        seed: int | None,
    ) -> None:
        self._name = name
        self._prompts = prompts
        self._engine = engine
        self._metrics = metrics
        self._seeds = random.Random(seed)

    def generating(
        self, kind: type[_Body], make_form: Callable[[_Body, Prompts, str], Form[_Body]]
    ) -> Handler:
        """Return the handler of a path whose bodies are of one ``kind``."""

        async def generate(request: web.Request) -> web.StreamResponse:
            with self._metrics.observed() as observed:
                given = await request.read()
                body = read_body(kind, given)
                check_model(body.model, self._name)
                refuse_unsupported(given)
                with naming_fields(body):
                    # The event loop is for others while a long prompt becomes tokens.
                    form = await asyncio.to_thread(
                        make_form, body, self._prompts, request_id(request.headers)
                    )
                    async with self._engine.answering(self._generations(form)) as outputs:
                        answer = self._stream if body.stream else self._whole
                        return await answer(request, form, outputs, observed)

        return generate

    def _generations(self, form: Form[_Body]) -> list[GenerationRequest]:
        return [self._generation(form, prompt_ids) for prompt_ids in form.prompt_ids]

    def _generation(self, form: Form[_Body], prompt_ids: Sequence[int]) -> GenerationRequest:
        body = form.body
        room = self._engine.engine.limits.room(len(prompt_ids), body.num_answers)
        default = room if form.default_length is None else min(form.default_length, room)
        # What does not fit, the engine refuses and says why.
        max_tokens = form.max_tokens or max(1, default)
        params = sampling_params(body, max_tokens, self._seeds.getrandbits(63))
        return GenerationRequest(uuid.uuid4().hex, prompt_ids, params, body.cache_salt or "")

    async def _whole(
        self,
        request: web.Request,
        form: Form[_Body],
        outputs: AsyncIterator[RequestOutput],
        observed: ObservedRequest,
    ) -> web.StreamResponse:
        answers: defaultdict[int, WholeAnswer] = defaultdict(WholeAnswer)
        tally = _Tally()
        async for output in outputs:
            observed.output(output)
            tally.add(output)
            answers[output.index].add(output)
        return json_response(
            form.whole([answers[index] for index in sorted(answers)], tally.usage())
        )

    async def _stream(
        self,
        request: web.Request,
        form: Form[_Body],
        outputs: AsyncIterator[RequestOutput],
        observed: ObservedRequest,
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        begun: set[int] = set()
        tally = _Tally()
        try:
            async for output in outputs:
                if not response.prepared:  # until now an error had a status of its own
                    await response.prepare(request)
                observed.output(output)
                tally.add(output)
                events = [] if output.index in begun else form.opening(output.index)
                begun.add(output.index)
                if output.text or output.finish_reason or form.body.return_token_ids:
                    events.append(form.piece(output))
                if events:
                    await response.write(b"".join(events))
        except PrefixCacheError as error:
            if not response.prepared:
                raise
            observed.outcome = "failed"
            await response.write(event(ApiError.of(error).document()))
        else:
            if form.body.wants_usage:
                await response.write(form.envelope.usage_chunk(tally.usage()))
            await response.write(DONE)
        await response.write_eof()
        return response


class _Tally:
    """Adds up the tokens of all answers to a request."""

    def __init__(self) -> None:
        self._of_prompts: dict[str, Usage] = {}
        self._completion_tokens = 0

    def add(self, output: RequestOutput) -> None:
        if output.usage is not None:
            self._of_prompts[output.id] = output.usage
            self._completion_tokens += output.usage.completion_tokens

    def usage(self) -> Document:
        return usage(
            sum(of_prompt.prompt_tokens for of_prompt in self._of_prompts.values()),
            sum(of_prompt.cached_tokens for of_prompt in self._of_prompts.values()),
            self._completion_tokens,
        )
