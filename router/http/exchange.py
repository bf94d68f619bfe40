"""One request that is forwarded: which node, what of its answer, how it ended."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prefix_cache.errors import NoNodeAvailable
from router.directory import follow_pin
from router.http.answers import Answer, error_answer, error_document
from router.http.engine_connection import EngineConnection
from router.http.forwarding import Forwarding
from router.http.heads import decision_fields, engine_head
from router.http.node_errors import (
    broken_off,
    failed_answer,
    no_node_answer,
    overloaded_answer,
    unavailable_answer,
)
from router.http.relay import Relay
from router.http.request_parser import Request
from router.open_routes import OpenRoute
from router.turn import Turn

if TYPE_CHECKING:
    from router.http.client_connection import ClientConnection

# Said by an engine, or by what stands before it, that cannot take this request now.
_UNAVAILABLE = (502, 503, 504)
# Of this process or machine: no other node could be connected to either.
_OUT_OF_SOCKETS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS)
_RESPONSES = b"/v1/responses"

_log = logging.getLogger(__name__)


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
        "_is_unnamed",
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
        self._is_unnamed = request.path == _RESPONSES
        """Whether an answer is to come whose id the next turn may name."""
        self._started_at = time.perf_counter()

    def start(self) -> None:
        """Choose a node and send the request there."""
        if self._forwarding.directory is None or self._turn.conversation is None:
            self._try_a_node()
        else:
            self._wait_for(self._follow_pin())

    async def _follow_pin(self) -> None:
        forwarding = self._forwarding
        await follow_pin(forwarding.dispatcher, forwarding.directory, self._turn.conversation)
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
            if error.errno in _OUT_OF_SOCKETS:
                self._out_of_sockets(error)
                return
            self._node_failed(502, f"cannot connect to {url}: {error.strerror or error}")
        else:
            self._send(engine)

    def _send(self, engine: EngineConnection) -> None:
        self._engine = engine
        self._client.deadline.set(self._forwarding.config.first_byte_timeout_s)
        engine.send(self, engine_head(self._request, engine.origin), self._request.body)

    def _out_of_sockets(self, error: OSError) -> None:
        """Give up: the router is at its own limit, which is no failure of the node."""
        _log.error("no socket for a connection to an engine: %s", error.strerror)
        assert self._route is not None
        self._forwarding.dispatcher.not_served(self._route)
        self._route = None
        self._answer(overloaded_answer(error))

    def _node_failed(self, status: int, why: str) -> None:
        """Leave the node for another; nothing of an answer was sent to the client yet."""
        assert self._route is not None
        self._forwarding.dispatcher.failed(self._route, why)
        self._try_another_node(failed_answer(status, self._route.node.name, why))

    def _node_unavailable(self, engine: EngineConnection) -> None:
        """Try another node; this one may be busy, or not like the request, but it answers."""
        assert self._route is not None
        self._forwarding.measurements.unavailable += 1
        self._forwarding.dispatcher.not_served(self._route)
        self._try_another_node(unavailable_answer(self._route.node.name, engine))

    def _try_another_node(self, last_failure: Answer) -> None:
        assert self._route is not None
        self._turn = replace(self._turn, exclude=self._turn.exclude | {self._route.node.name})
        self._engine = self._route = None
        self._try_a_node(last_failure=last_failure)

    def _answer(self, answer: Answer) -> None:
        self._forwarding.measurements.answers[answer.status] += 1
        self._client.answer(answer)

    # --- the answer -------------------------------------------------------------------------

    def engine_answered(self, engine: EngineConnection, piece: bytes, *, is_whole: bool) -> None:
        """Pass on what came of the answer."""
        try:
            self._pass_on(engine, piece, is_whole)
        except Exception as error:
            self._internal_error(error)

    def _pass_on(self, engine: EngineConnection, piece: bytes, is_whole: bool) -> None:
        out = []
        relay, begins = self._relay, self._relay is None
        if relay is None:
            if engine.status in _UNAVAILABLE:
                if not is_whole:
                    engine.cancel()
                self._node_unavailable(engine)
                return
            relay = Relay(engine, can_chunk=not self._request.is_http_1_0)
            out.append(self._head(engine, relay))
            self._relay = relay
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
        if piece and self._is_unnamed:
            self._learn_name(piece)
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

    def _learn_name(self, beginning: bytes) -> None:
        """Make the turn that goes on from this response go to the node that has it."""
        self._is_unnamed = False
        key = self._forwarding.body_reader.next_key(self._turn, beginning)
        if key is not None and self._route is not None:
            self._forwarding.dispatcher.pin(key, self._route)

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
        self._client.cut(relay.broken_off(broken_off(why)))

    def cut_off(self) -> None:
        """The router has to end: what is under way ends, and no fault of the node's."""
        self._break_off(503, "the router ends")

    def _internal_error(self, error: BaseException) -> None:
        _log.error("internal error", exc_info=error)
        self._break_off(500, "internal error, see the router's log")

    def _break_off(self, status: int, why: str) -> None:
        has_ended = self._relay is not None and self._engine is None
        self._end()
        self._client.close_when_finished()
        if self._relay is None:
            self._answer(error_answer(status, why))
        elif has_ended:
            self._client.abort()
        else:
            self._forwarding.measurements.cut += 1
            error = error_document(status, f"the answer broke off: {why}")
            self._client.cut(self._relay.broken_off(error))

    def expired(self) -> None:
        """The deadline has passed: of connecting, of the first byte, or of the next ones."""
        config = self._forwarding.config
        if self._is_paused:  # the client has not read for so long
            self._forwarding.measurements.cut += 1
            self._end()
            self._client.abort()
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
        """The client is not there any more: whatever is under way for it ends.

        It may have got all it wanted: many do not wait for the end that HTTP wants.
        """
        try:
            if self._relay is not None and self._relay.has_said_all():
                self._report_end(self._relay)
            else:
                self._forwarding.measurements.clients_gone += 1
        finally:
            self._end()

    def _end(self) -> None:
        """End what is under way, and no fault of the node's."""
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
            self._internal_error(error)

    def _stop_waiting(self) -> bool:
        waiting, self._waiting = self._waiting, None
        return waiting is not None and waiting.cancel()
