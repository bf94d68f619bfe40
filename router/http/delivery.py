"""An answer of an engine that has begun, on its way to the client: how it goes on, and ends."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.http.answers import error_document
from router.http.engine_connection import EngineConnection
from router.http.forwarding import Forwarding
from router.http.heads import route_lines
from router.http.node_errors import broken_off
from router.http.relay import Relay
from router.http.request_parser import Request
from router.open_routes import OpenRoute
from router.turn import Turn

if TYPE_CHECKING:
    from router.http.client_connection import ClientConnection

_RESPONSES = b"/v1/responses"

_log = logging.getLogger(__name__)


class Delivery:
    """Passes the answer of ``engine`` on to ``client`` as it comes.

    It is never sent anew: when it breaks, the client's connection is broken off, so that the
    client never takes what it got for the whole.  Whatever happens, ``route`` is reported to the
    dispatcher once.
    """

    __slots__ = (
        "_client",
        "_engine",
        "_forwarding",
        "_head",
        "_is_paused",
        "_is_unnamed",
        "_relay",
        "_route",
        "_turn",
    )

    def __init__(
        self,
        forwarding: Forwarding,
        client: ClientConnection,
        request: Request,
        turn: Turn,
        route: OpenRoute,
        engine: EngineConnection,
    ) -> None:
        self._forwarding = forwarding
        self._client = client
        self._turn = turn
        self._route: OpenRoute | None = route
        self._engine: EngineConnection | None = engine
        self._relay = Relay(engine, can_chunk=not request.is_http_1_0)
        if self._relay.ends_with_connection:
            client.close_when_finished()
        ours = b"%bx-request-id: %b\r\n%b" % (
            route_lines(route),
            request.request_id,
            client.connection_field(),
        )
        self._head = self._relay.head(engine, ours)
        self._is_paused = False
        self._is_unnamed = request.path == _RESPONSES
        """Whether an answer is to come whose id the next turn may name."""

    def begin(self, engine: EngineConnection, piece: bytes, *, is_whole: bool) -> None:
        """Pass on the head and what came with it, and take over from who asked the engine."""
        self._client.under_way = self
        if not is_whole:
            engine.hand_over(self)
            if not self._client.can_write:  # the answer before this one is still to be read
                self.pause()
        try:
            self._pass_on([self._head], piece, is_whole)
            self._report_beginning(engine.status)
            self._take_note(piece, is_whole)
        except Exception as error:
            self._internal_error(error)

    def engine_answered(self, engine: EngineConnection, piece: bytes, *, is_whole: bool) -> None:
        """Pass on what came of the answer."""
        try:
            self._pass_on([], piece, is_whole)
            self._take_note(piece, is_whole)
        except Exception as error:
            self._internal_error(error)

    def _pass_on(self, out: list[bytes], piece: bytes, is_whole: bool) -> None:
        if piece:
            out.append(self._relay.piece(piece))
        if is_whole:
            self._engine = None
            if end := self._relay.end():
                out.append(end)
        else:
            self._client.deadline.set(self._forwarding.config.idle_timeout_s)
        self._client.send(out)

    def _take_note(self, piece: bytes, is_whole: bool) -> None:
        if piece and self._is_unnamed:
            self._learn_name(piece)
        if is_whole:
            self._report_end()
            self._client.finished()

    def _report_beginning(self, status: int) -> None:
        assert self._route is not None
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

    def _report_end(self) -> None:
        if self._route is None:  # reported already
            return
        usage = self._relay.usage()
        self._forwarding.dispatcher.served(
            self._route, cached_tokens=usage.cached_tokens, prompt_tokens=usage.prompt_tokens
        )
        self._route = None
        if usage.prompt_tokens:
            self._forwarding.body_reader.learn(self._turn, usage.prompt_tokens)

    # --- what ends it early -----------------------------------------------------------------

    def engine_failed(self, why: str, *, was_stale: bool) -> None:
        """The engine, or the connection to it, broke."""
        self._engine = None
        if self._route is not None:
            route, self._route = self._route, None
            self._forwarding.dispatcher.failed(route, why)
        self._cut(broken_off(why))

    def expired(self) -> None:
        """The deadline has passed: of what comes next, or of a client that does not read."""
        if self._is_paused:
            self._forwarding.measurements.cut += 1
            self._end()
            self._client.abort()
            return
        assert self._engine is not None
        self._engine.cancel()
        idle_timeout_s = self._forwarding.config.idle_timeout_s
        self.engine_failed(f"it sent nothing for {idle_timeout_s:g} s", was_stale=False)

    def client_gone(self) -> None:
        """The client is not there any more: whatever is under way for it ends.

        It may have got all it wanted: many do not wait for the end that HTTP wants.
        """
        try:
            if self._relay.has_said_all():
                self._report_end()
            else:
                self._forwarding.measurements.clients_gone += 1
        finally:
            self._end()

    def cut_off(self) -> None:
        """The router has to end: what is under way ends, and no fault of the node's."""
        self._break_off(503, "the router ends")

    def _internal_error(self, error: BaseException) -> None:
        _log.error("internal error", exc_info=error)
        self._break_off(500, "internal error, see the router's log")

    def _break_off(self, status: int, why: str) -> None:
        has_ended = self._engine is None
        self._end()
        self._client.close_when_finished()
        if has_ended:
            self._client.abort()
        else:
            self._cut(error_document(status, f"the answer broke off: {why}"))

    def _cut(self, error: bytes) -> None:
        """End the client's connection within the answer, with this error where it can be told."""
        self._forwarding.measurements.cut += 1
        self._client.cut(self._relay.broken_off(error))

    def _end(self) -> None:
        """End what is under way, and no fault of the node's."""
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
