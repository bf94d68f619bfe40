"""One request that is forwarded, until its answer begins: which node, and which one after it."""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from prefix_cache.errors import NoNodeAvailable
from router.directory import follow_pin
from router.http.answers import (
    NOT_ROUTED,
    Answer,
    internal_error_answer,
    router_ends_answer,
)
from router.http.delivery import Delivery
from router.http.engine_connection import EngineConnection
from router.http.forwarding import Forwarding
from router.http.heads import engine_head, route_lines
from router.http.node_errors import (
    failed_answer,
    no_node_answer,
    overloaded_answer,
    unavailable_answer,
)
from router.http.request_parser import Request
from router.open_routes import OpenRoute
from router.turn import Turn

if TYPE_CHECKING:
    from router.http.client_connection import ClientConnection

# Said by an engine, or by what stands before it, that cannot take this request now.
_UNAVAILABLE = (502, 503, 504)
# Of this process or machine: no other node could be connected to either.
_OUT_OF_SOCKETS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS)

_log = logging.getLogger(__name__)


class Exchange:
    """Forwards one request of ``client`` to a node, whose answer a `Delivery` passes on.

    A node that fails before the first byte of its answer is left for another.  Whatever happens,
    each route that was opened is reported to the dispatcher once, here or there.
    """

    __slots__ = (
        "_client",
        "_engine",
        "_forwarding",
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

    # --- to a node --------------------------------------------------------------------------

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

    # --- what comes back --------------------------------------------------------------------

    def engine_answered(self, engine: EngineConnection, piece: bytes, *, is_whole: bool) -> None:
        """Let the answer be delivered, unless it is that the node is unavailable."""
        try:
            if engine.status in _UNAVAILABLE:
                if not is_whole:
                    engine.cancel()
                self._node_unavailable(engine)
                return
            delivery = self._delivery(engine)
        except Exception as error:
            self._internal_error(error)
            return
        self._engine = self._route = None
        delivery.begin(engine, piece, is_whole=is_whole)

    def _delivery(self, engine: EngineConnection) -> Delivery:
        assert self._route is not None
        delivery = Delivery(
            *(self._forwarding, self._client, self._request, self._turn, self._route), engine
        )
        self._request.body = b""  # it is not sent again
        measurements = self._forwarding.measurements
        measurements.answers[engine.status] += 1
        measurements.first_byte(time.perf_counter() - self._started_at)
        return delivery

    def engine_failed(self, why: str, *, was_stale: bool) -> None:
        """The engine, or the connection to it, broke."""
        if was_stale:
            # The engine closed it while the request was on its way there: no failure of either.
            self._forwarding.measurements.stale_connections += 1
            self._engine = None
            self._connect()
        else:
            self._node_failed(502, why)

    def _node_failed(self, status: int, why: str) -> None:
        """Leave the node for another; nothing of an answer was sent to the client yet."""
        assert self._route is not None
        self._forwarding.dispatcher.failed(self._route, why)
        self._try_another_node(failed_answer(status, self._route, why))

    def _node_unavailable(self, engine: EngineConnection) -> None:
        """Try another node; this one may be busy, or not like the request, but it answers."""
        assert self._route is not None
        self._forwarding.measurements.unavailable += 1
        self._forwarding.dispatcher.not_served(self._route)
        self._try_another_node(unavailable_answer(self._route, engine))

    def _try_another_node(self, last_failure: Answer) -> None:
        assert self._route is not None
        self._turn.exclude |= {self._route.node.name}
        self._engine = self._route = None
        self._try_a_node(last_failure=last_failure)

    # --- what ends it early -----------------------------------------------------------------

    def expired(self) -> None:
        """The deadline has passed: of connecting, or of the first byte."""
        config = self._forwarding.config
        if self._stop_waiting():
            self._node_failed(504, f"no connection within {config.connect_timeout_s:g} s")
            return
        assert self._engine is not None
        self._engine.cancel()
        self._node_failed(504, f"no answer within {config.first_byte_timeout_s:g} s")

    def client_gone(self) -> None:
        """The client is not there any more: whatever is under way for it ends."""
        self._forwarding.measurements.clients_gone += 1
        self._end()

    def cut_off(self) -> None:
        """The router has to end: what is under way ends, and no fault of the node's."""
        self._give_up(router_ends_answer(self._decision()))

    def _internal_error(self, error: BaseException) -> None:
        _log.error("internal error", exc_info=error)
        self._give_up(internal_error_answer(self._decision()))

    def _out_of_sockets(self, error: OSError) -> None:
        """Give up: the router is at its own limit, which is no failure of the node."""
        _log.error("no socket for a connection to an engine: %s", error.strerror)
        assert self._route is not None
        self._forwarding.dispatcher.not_served(self._route)
        answer = overloaded_answer(error, self._route)
        self._route = None
        self._answer(answer)

    def _decision(self) -> bytes:
        return NOT_ROUTED if self._route is None else route_lines(self._route)

    def _give_up(self, answer: Answer) -> None:
        self._end()
        self._client.close_when_finished()
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        self._forwarding.measurements.answers[answer.status] += 1
        self._client.answer(answer)

    def _end(self) -> None:
        """End what is under way, and no fault of the node's."""
        self._stop_waiting()
        if self._engine is not None:
            self._engine.cancel()
            self._engine = None
        if self._route is not None:
            self._forwarding.dispatcher.not_served(self._route)
            self._route = None

    def pause(self) -> None:
        """Nothing was sent to the client yet."""

    def resume(self) -> None:
        """Nothing was held back."""

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
