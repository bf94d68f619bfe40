"""The OpenAI-compatible face of the router: what is served at which path."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from urllib.parse import parse_qs, unquote_to_bytes

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from prefix_cache.client import NodeState
from prefix_cache.errors import InvalidRequest, UnknownModel, UnknownRoute
from router.http.answers import Answer, error_answer, json_answer
from router.http.client_connection import ClientConnection, Handler
from router.http.exchange import Exchange
from router.http.explaining import explained
from router.http.forwarding import Forwarding
from router.http.pending_answer import PendingAnswer
from router.http.request_parser import Refused, Request
from router.prompts.body_reader import PATHS
from router.status import Status

_MODEL = b"/v1/models/"  # with its name behind it
_CONVERSATIONS_SHOWN = 100
# For clients to read that their answers break off, and for the loop to take note.
_CUT_OFF_S = 1.0


class HttpApi:
    """The endpoints, and the connections they are served to."""

    def __init__(
        self,
        forwarding: Forwarding,
        status: Status,
        connections: set[ClientConnection],
    ) -> None:
        config = forwarding.config
        self._connections = connections
        self._has_none = asyncio.Event()
        self.max_head_bytes = config.max_head_bytes
        self.max_body_bytes = config.max_body_bytes
        self.head_timeout_s = config.head_timeout_s
        self._forwarding = forwarding
        self._status = status
        get = {
            "/health": _at_once(self._health),
            "/ready": _at_once(self._ready),
            "/metrics": _soon(self._metrics),
            "/v1/models": _at_once(self._models),
            _MODEL.decode(): _at_once(self._one_model),
            "/nodes": _soon(self._nodes),
            "/conversations": _soon(self._conversations),
            "/explain": _soon(self._explain_past),
        }
        post: dict[str, Handler] = {"/explain": self._explain_body}
        post |= {path: self._forwarder(path) for path in PATHS}
        self._handlers: dict[bytes, dict[bytes, Handler]] = {}
        for path, handler in get.items():
            self._handlers[path.encode()] = {b"GET": handler, b"HEAD": handler}
        for path, handler in post.items():
            self._handlers.setdefault(path.encode(), {})[b"POST"] = handler

    def find(self, request: Request) -> Handler:
        """Return the handler of a request.  Raises Refused."""
        path = _MODEL if request.path.startswith(_MODEL) else request.path
        handlers = self._handlers.get(path)
        if handlers is None:
            raise Refused(404, f"nothing is served at {request.path[:256].decode()}")
        handler = handlers.get(request.method)
        if handler is None:
            allowed = b", ".join(handlers).decode()
            raise Refused(405, f"expected {allowed} here", allow=allowed)
        return handler

    def opened(self, connection: ClientConnection) -> None:
        """Take note of a new connection."""
        self._connections.add(connection)

    def lost(self, connection: ClientConnection) -> None:
        """Take note that a connection is no more."""
        self._connections.discard(connection)
        if not self._connections:
            self._has_none.set()

    async def drain(self, grace_s: float) -> None:
        """Let what is under way end, for so long at most."""
        await self._end_all(ClientConnection.drain, grace_s)

    async def cut_off(self) -> None:
        """End every connection; who does not read how its answer ends has a moment only."""
        await self._end_all(ClientConnection.cut_off, _CUT_OFF_S)
        await self._end_all(ClientConnection.abort, _CUT_OFF_S)

    async def _end_all(self, end: Callable[[ClientConnection], None], grace_s: float) -> None:
        self._has_none.clear()
        for connection in list(self._connections):
            end(connection)
        if self._connections:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_none.wait(), grace_s)

    # --- forwarded --------------------------------------------------------------------------

    def _forwarder(self, path: str) -> Handler:
        forwarding = self._forwarding
        read = forwarding.body_reader.read

        def forward(client: ClientConnection, request: Request) -> None:
            try:
                turn = read(path, request.headers, request.body)
            except (InvalidRequest, UnknownModel) as error:
                client.answer(_bad_body(error))
                return
            exchange = Exchange(forwarding, client, request, turn)
            client.under_way = exchange
            exchange.start()

        return forward

    # --- answered here ----------------------------------------------------------------------

    def _health(self, request: Request) -> Answer:
        return json_answer({"status": "ok"})

    def _ready(self, request: Request) -> Answer:
        states = [node.state for node in self._forwarding.dispatcher.nodes()]
        ready = states.count(NodeState.READY)
        document = {"ready": ready, "nodes": len(states)}
        return json_answer(document, 200 if ready else 503)

    async def _metrics(self, request: Request) -> Answer:
        return Answer(200, await self._status.metrics(), CONTENT_TYPE_PLAIN_0_0_4.encode())

    def _models(self, request: Request) -> Answer:
        models = [_model(name) for name in self._model_names()]
        return json_answer({"object": "list", "data": models})

    def _one_model(self, request: Request) -> Answer:
        name = unquote_to_bytes(request.path.removeprefix(_MODEL)).decode(errors="replace")
        if name not in self._model_names():
            return _bad_body(UnknownModel(f"the model {name[:256]!r} is not served here"))
        return json_answer(_model(name))

    def _model_names(self) -> Sequence[str]:
        names: dict[str, None] = {}
        for pool in self._forwarding.dispatcher.pools.values():
            served = [node.models for node in pool.nodes.values()]
            names |= dict.fromkeys(pool.config.models or sorted(set().union(*served)))
        return list(names)

    async def _nodes(self, request: Request) -> Answer:
        return json_answer(await self._status.nodes())

    async def _conversations(self, request: Request) -> Answer:
        text = _query(request).get("limit", str(_CONVERSATIONS_SHOWN))
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            return error_answer(400, f"limit is {text[:256]!r}, expected a number", param="limit")
        return json_answer(await self._status.conversations(int(text)))

    async def _explain_past(self, request: Request) -> Answer:
        request_id = _query(request).get("id", "")
        try:
            return json_answer(await self._status.explanation(request_id))
        except UnknownRoute as error:
            return error_answer(404, str(error), param="id", code="unknown_request")

    def _explain_body(self, client: ClientConnection, request: Request) -> None:
        forwarding = self._forwarding
        path = _query(request).get("path", PATHS[0])
        if path not in PATHS:
            expected = f"path is {path[:256]!r}, expected one of {', '.join(PATHS)}"
            client.answer(error_answer(400, expected, param="path"))
            return
        try:
            turn = forwarding.body_reader.read(path, request.headers, request.body)
        except (InvalidRequest, UnknownModel) as error:
            client.answer(_bad_body(error))
        else:
            find = partial(explained, forwarding, request, path, turn)
            client.under_way = PendingAnswer(client, find)


def _at_once(answer: Callable[[Request], Answer]) -> Handler:
    def handle(client: ClientConnection, request: Request) -> None:
        client.answer(answer(request))

    return handle


def _soon(answer: Callable[[Request], Awaitable[Answer]]) -> Handler:
    def handle(client: ClientConnection, request: Request) -> None:
        client.under_way = PendingAnswer(client, partial(answer, request))

    return handle


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "prefix-cache"}


def _bad_body(error: InvalidRequest | UnknownModel) -> Answer:
    if isinstance(error, UnknownModel):
        return error_answer(404, str(error), param="model", code="model_not_found")
    param = error.details.get("param")
    return error_answer(400, str(error), param=str(param) if param else None)


def _query(request: Request) -> Mapping[str, str]:
    """The parameters of the URL, the first value of each."""
    given = parse_qs(request.query.decode(), keep_blank_values=True)
    return {name: values[0] for name, values in given.items()}
