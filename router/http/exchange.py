"""One request that is forwarded: which node, what of its answer, how it ended."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from prefix_cache.errors import NoNodeAvailable
from router.config import RouterConfig
from router.decisions import Decisions
from router.dispatcher import Dispatcher
from router.http.answers import Answer, error_answer, error_document
from router.http.engine_connection import EngineConnection
from router.http.engine_pool import EnginePool
from router.http.heads import decision_fields, engine_head, node_field
from router.http.measurements import Measurements
from router.http.relay import Relay
from router.http.request_parser import Request
from router.open_routes import OpenRoute
from router.prompts import BodyReader
from router.turn import Turn

if TYPE_CHECKING:
    from router.directory import Directory
    from router.http.client_connection import ClientConnection

_RETRY_AFTER = b"retry-after: 1\r\n"
# Said by an engine, or by what stands before it, that cannot take requests.
_FAILURES = (502, 503, 504)
_NODE_FAILED = "node_failed"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Forwarding:
    """What every exchange works with."""

    dispatcher: Dispatcher
    body_reader: BodyReader
    decisions: Decisions
    directory: Directory | None
    engines: EnginePool
    config: RouterConfig
    measurements: Measurements


def no_node_answer(error: NoNodeAvailable) -> Answer:
    """Say that no node can take a request now."""
    return error_answer(503, str(error), code="no_node_available", headers=_RETRY_AFTER)


class Exchange:
    """Forwards one request of ``client`` and passes the answer on as it comes.

    A node that fails before the first byte of its answer is left for another; afterwards the
    client's connection is broken off, so that it never takes what it got for the whole.
    Whatever happens, each route that was opened is reported to the dispatcher once.
    """

    __slots__ = (
        "_client",
        "_engine",
        "_forwarding",
        "_is_paused",
        "_relay",
        "_request",
        "_route",
        "_started_at",
        "_turn",
        "_waiting",
    )

    def __init__(
        self, forwarding: Forwarding, client: ClientConnection, request: Request, turn: Turn
    ) -> None:
        self._forwarding = forwarding
        self._client = client
        self._request = request
        self._turn = turn
        self._route: OpenRoute | None = None
        self._engine: EngineConnection | None = None
        self._waiting: asyncio.Task[None] | None = None
        self._relay: Relay | None = None
        self._is_paused = False
        self._started_at = time.perf_counter()

    def start(self) -> None:
        """Choose a node and send the request there."""
        directory = self._forwarding.directory
        if directory is None or self._turn.conversation is None:
            self._try_a_node()
        else:
            self._wait_for(self._learn_pin(directory))

    async def _learn_pin(self, directory: Directory) -> None:
        conversation = self._turn.conversation
        assert conversation is not None
        pin = await directory.find_pin(conversation)
        if pin is not None:
            self._forwarding.dispatcher.learn_pin(conversation, pin)
        self._try_a_node()

    # --- before the answer ------------------------------------------------------------------

    def _try_a_node(self, *, last_failure: Answer | None = None) -> None:
        forwarding = self._forwarding
        if last_failure is not None and len(self._turn.exclude) >= forwarding.config.attempts:
            self._answer(last_failure)
            return
        try:
            route = forwarding.dispatcher.route(self._turn)
        except NoNodeAvailable as error:
            self._answer(last_failure or no_node_answer(error))
            return
        self._route = route
        forwarding.decisions.keep(self._request.request_id.decode(), route.decision)
        engine = forwarding.engines.take(route.node.url)
        if engine is None:
            self._connect()
        else:
            self._send(engine)

    def _connect(self) -> None:
        assert self._route is not None
        self._client.deadline.set(self._forwarding.config.connect_timeout_s)
        self._wait_for(self._connected(self._route.node.url))

    async def _connected(self, url: str) -> None:
        try:
            engine = await self._forwarding.engines.connect(url)
        except OSError as error:
            self._node_failed(502, f"cannot connect to {url}: {error.strerror or error}")
        else:
            self._send(engine)

    def _send(self, engine: EngineConnection) -> None:
        self._engine = engine
        self._client.deadline.set(self._forwarding.config.first_byte_timeout_s)
        origin = engine.url.partition("://")[2].encode()
        engine.send(self, engine_head(self._request, origin), self._request.body)

    def _node_failed(self, status: int, why: str) -> None:
        """Leave the node for another; nothing of an answer was sent to the client yet."""
        assert self._route is not None
        self._engine = None
        route, self._route = self._route, None
        self._forwarding.dispatcher.failed(route, why)
        node = route.node.name
        self._turn = replace(self._turn, exclude=self._turn.exclude | {node})
        headers = node_field(node) + (_RETRY_AFTER if status == 503 else b"")
        self._try_a_node(
            last_failure=error_answer(
                status, f"node {node} failed: {why}", code=_NODE_FAILED, headers=headers
            )
        )

    def _answer(self, answer: Answer) -> None:
        self._forwarding.measurements.answers[answer.status] += 1
        self._client.answer(answer)

    # --- the answer -------------------------------------------------------------------------

    def engine_answered(self, engine: EngineConnection, piece: bytes, *, is_whole: bool) -> None:
        """Pass on what came of the answer."""
        try:
            self._pass_on(engine, piece, is_whole)
        except Exception:
            _log.exception("internal error")
            self._client.abort()

    def _pass_on(self, engine: EngineConnection, piece: bytes, is_whole: bool) -> None:
        out = []
        relay, begins = self._relay, self._relay is None
        if relay is None:
            if engine.status in _FAILURES:
                if not is_whole:
                    engine.cancel()
                self._node_failed(engine.status, f"it answered {engine.status}")
                return
            relay = self._relay = Relay(engine, can_chunk=not self._request.is_http_1_0)
            out.append(self._head(engine, relay))
        if piece:
            out.append(relay.piece(piece))
        if is_whole:
            self._engine = None
            if end := relay.end():
                out.append(end)
        else:
            self._client.deadline.set(self._forwarding.config.idle_timeout_s)
        self._client.send(out)
        if begins:
            self._report_beginning(engine.status)
        if is_whole:
            self._report_end(relay)
            self._client.finished()

    def _head(self, engine: EngineConnection, relay: Relay) -> bytes:
        assert self._route is not None
        if relay.ends_with_connection:
            self._client.close_when_finished()
        ours = b"%bx-request-id: %b\r\n%b" % (
            decision_fields(self._route.node.name, self._route.decision.reason),
            self._request.request_id,
            self._client.connection_field(),
        )
        return relay.head(engine, ours)

    def _report_beginning(self, status: int) -> None:
        assert self._route is not None
        measurements = self._forwarding.measurements
        self._request.body = b""  # it is not sent again
        measurements.answers[status] += 1
        measurements.first_byte(time.perf_counter() - self._started_at)
        if status < 300:
            self._forwarding.dispatcher.accepted(self._route)
        else:
            self._forwarding.dispatcher.not_served(self._route)
            self._route = None

    def _report_end(self, relay: Relay) -> None:
        if self._route is None:  # reported already
            return
        usage = relay.usage()
        self._forwarding.dispatcher.served(
            self._route, cached_tokens=usage.cached_tokens, prompt_tokens=usage.prompt_tokens
        )
        self._route = None
        if usage.prompt_tokens:
            self._forwarding.body_reader.learn(self._turn, usage.prompt_tokens)

    # --- what ends it early -----------------------------------------------------------------

    def engine_failed(self, why: str, *, was_stale: bool) -> None:
        """The engine, or the connection to it, broke."""
        if self._relay is not None:
            self._cut(self._relay, why)
        elif was_stale:
            # The engine closed it while the request was on its way there: no failure of either.
            self._forwarding.measurements.stale_connections += 1
            self._engine = None
            self._connect()
        else:
            self._node_failed(502, why)

    def _cut(self, relay: Relay, why: str) -> None:
        """Break off an answer that has begun, so that it cannot be taken for a whole one."""
        self._engine = None
        self._forwarding.measurements.cut += 1
        if self._route is not None:
            route, self._route = self._route, None
            self._forwarding.dispatcher.failed(route, why)
        error = error_document(502, f"the answer broke off: {why}", code=_NODE_FAILED)
        self._client.cut(relay.broken_off(error))

    def expired(self) -> None:
        """The deadline has passed: of connecting, of the first byte, or of the next ones."""
        config = self._forwarding.config
        if self._is_paused:
            self._client.abort()  # it has not read for so long
            return
        if self._stop_waiting():
            self._node_failed(504, f"no connection within {config.connect_timeout_s:g} s")
            return
        assert self._engine is not None
        self._engine.cancel()
        if self._relay is not None:
            self._cut(self._relay, f"it sent nothing for {config.idle_timeout_s:g} s")
        else:
            self._node_failed(504, f"no answer within {config.first_byte_timeout_s:g} s")

    def client_gone(self) -> None:
        """The client is not there any more: whatever is under way for it ends."""
        self._forwarding.measurements.clients_gone += 1
        self._stop_waiting()
        if self._engine is not None:
            self._engine.cancel()
            self._engine = None
        if self._route is not None:
            self._forwarding.dispatcher.not_served(self._route)
            self._route = None

    # --- backpressure -----------------------------------------------------------------------

    def pause(self) -> None:
        """The client reads too slowly: the engine has to wait."""
        if self._engine is not None:
            self._is_paused = True
            self._engine.pause_reading()
            self._client.deadline.set(self._forwarding.config.idle_timeout_s)

    def resume(self) -> None:
        """The client has caught up."""
        if self._is_paused and self._engine is not None:
            self._is_paused = False
            self._engine.resume_reading()
            self._client.deadline.set(self._forwarding.config.idle_timeout_s)

    # --- what has to be waited for ----------------------------------------------------------

    def _wait_for(self, step: Coroutine[Any, Any, None]) -> None:
        self._waiting = asyncio.get_running_loop().create_task(step)
        self._waiting.add_done_callback(self._waited)

    def _waited(self, task: asyncio.Task[None]) -> None:
        if self._waiting is task:
            self._waiting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("internal error", exc_info=error)
            self._client.abort()

    def _stop_waiting(self) -> bool:
        waiting, self._waiting = self._waiting, None
        return waiting is not None and waiting.cancel()
