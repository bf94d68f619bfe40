"""Answers requests: whole or as a stream, with the faults that are in force."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from prefix_cache.index import Identity
from prefix_cache.openai_api.bodies import AnyBody, read_body
from prefix_cache.openai_api.errors import ApiError, check_model
from prefix_cache.openai_api.json_response import json_response
from prefix_cache.openai_api.request_id import request_id
from prefix_cache.testing.config import EngineConfig
from prefix_cache.testing.counts import Counts
from prefix_cache.testing.faults import CutOff, Faults, FaultSwitch
from prefix_cache.testing.forms import Form
from prefix_cache.testing.worker import Decoding, Worker


class Answering:
    """Makes the handlers of the paths that generate."""

    def __init__(
        self, config: EngineConfig, worker: Worker, faults: FaultSwitch, counts: Counts
    ) -> None:
        self._config = config
        self._worker = worker
        self._faults = faults
        self._counts = counts

    def generating(self, kind: type[AnyBody], make_form: Callable[[AnyBody, str], Form]) -> Handler:
        """Return the handler of a path that generates; its bodies are of one ``kind``."""

        async def generate(
            request: web.Request, body: AnyBody, faults: Faults
        ) -> web.StreamResponse:
            form = make_form(body, request_id(request.headers))
            identity = Identity(model=body.model, salt=body.cache_salt or "")
            async with self._worker.compute(identity, form.prompt, form.answer) as decoding:
                self._counts.prompt_tokens += decoding.prompt_tokens
                self._counts.cached_tokens += decoding.cached_tokens
                answer = _stream if form.stream else _whole
                return await answer(request, form, decoding, faults.cut_after_items)

        return self.answering(kind, generate)

    def answering(
        self,
        kind: type[AnyBody],
        answer: Callable[[web.Request, AnyBody, Faults], Awaitable[web.StreamResponse]],
    ) -> Handler:
        """Return a handler that counts, meets the faults in force and reads the body."""

        async def handle(request: web.Request) -> web.StreamResponse:
            with self._counted(request):
                given = await request.read()
                faults = self._faults.take()
                await self._begin(faults)
                body = read_body(kind, given)
                check_model(body.model, self._config.model)
                return await answer(request, body, faults)

        return handle

    async def _begin(self, faults: Faults) -> None:
        """What goes wrong before the first byte."""
        changed = self._faults.changed
        await asyncio.sleep(faults.first_byte_delay_s)
        if faults.hang:
            await self._faults.hang(changed)
        if faults.status is not None:
            raise ApiError(faults.status, f"this is the status {faults.status} that was asked for")

    @contextmanager
    def _counted(self, request: web.Request) -> Iterator[None]:
        counts = self._counts
        counts.in_flight += 1
        counts.last_path, counts.last_headers = request.path, dict(request.headers)
        try:
            yield
            counts.served += 1
        except (asyncio.CancelledError, ConnectionError):
            counts.cancelled += 1
            raise
        except Exception:
            counts.failed += 1
            raise
        finally:
            counts.in_flight -= 1


async def _whole(
    request: web.Request, form: Form, decoding: Decoding, cut_after: int | None
) -> web.StreamResponse:
    async for _ in decoding:
        pass
    if cut_after is None:
        return json_response(form.whole(decoding))
    body = msgspec.json.encode(form.whole(decoding))
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    response.content_length = len(body)
    await response.prepare(request)
    await response.write(body[: len(body) // 2])
    raise cut_off(request)


async def _stream(
    request: web.Request, form: Form, decoding: Decoding, cut_after: int | None
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    written = 0

    async def write(events: list[bytes]) -> None:
        nonlocal written
        for event in events:
            if written == cut_after:
                raise cut_off(request)
            await response.write(event)
            written += 1

    await write(form.opening())
    async for number in decoding:
        await write(form.piece(number))
    await write(form.closing(decoding))
    await response.write_eof()
    return response


def cut_off(request: web.Request) -> CutOff:
    """Close the connection where it is, and return what to raise."""
    if request.transport is not None:
        request.transport.close()
    return CutOff()
