"""One connection of a client: its requests in order, and an answer to each."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from router.http.answers import Answer, error_answer, internal_error_answer
from router.http.deadline import Deadline
from router.http.outbox import Outbox
from router.http.request_parser import Refused, Request, RequestParser

# Longer than clients and balancers keep an idle connection: who sends next should end it.
_KEEP_ALIVE_S = 75.0
# Bytes of a body in which it goes on, if slowly.
_BODY_PROGRESS = 1024
# For the client to read a refusal before its connection is gone.
_LINGER_S = 2.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)

_log = logging.getLogger(__name__)


class UnderWay(Protocol):
    """A request whose answer others have a part in."""

    def expired(self) -> None:
        """The deadline of the connection has passed."""

    def client_gone(self) -> None:
        """The connection is lost."""

    def cut_off(self) -> None:
        """The router has to end: end the answer, so that it cannot be taken for a whole one."""

    def pause(self) -> None:
        """The client reads too slowly."""

    def resume(self) -> None:
        """The client has caught up."""


Handler = Callable[["ClientConnection", Request], None]
"""Answers a request, or lets the connection know what will: see ``under_way``."""


class Endpoints(Protocol):
    """What is served, to whom, and how much of a request is taken."""

    max_head_bytes: int
    max_body_bytes: int
    head_timeout_s: float

    def find(self, request: Request) -> Handler:
        """Return the handler of a request, of which only the head is looked at.  Raises Refused."""

    def opened(self, connection: ClientConnection) -> None:
        """Take note of a new connection."""

    def lost(self, connection: ClientConnection) -> None:
        """Take note that a connection is no more."""


class ClientConnection(asyncio.Protocol):
    """Serves the requests of one client, one after the other.

    Of requests sent ahead only what came with one read is kept; the rest waits in the network.
    """

    def __init__(self, endpoints: Endpoints, outbox: Outbox) -> None:
        self._endpoints = endpoints
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        self.deadline = Deadline(self._loop, self._expired)
        self.under_way: UnderWay | None = None
        self._parser = RequestParser(
            max_head_bytes=endpoints.max_head_bytes,
            max_body_bytes=endpoints.max_body_bytes,
            on_head=self._on_head,
        )
        self._request: Request | None = None
        self._refused: Refused | None = None
        self._owes_continue = False
        self._head_is_due = False
        self._was_in_body = False
        self._body_due = 0
        """How large the present body has to be for its deadline to move on."""
        self._goes_on = False
        self._reads = True
        self.can_write = True
        """Unless the client has yet to read much of what was sent."""
        self._closes = False
        """After the present answer."""
        self._is_closing = False

    # --- for who answers --------------------------------------------------------------------

    def send(self, pieces: Sequence[bytes]) -> None:
        """Send pieces of an answer."""
        if not self._transport.is_closing():
            self._outbox.put(self._transport, pieces)

    def answer(self, answer: Answer) -> None:
        """Send a whole answer, and go on."""
        request = self._request
        assert request is not None
        to_head = request.method == b"HEAD"
        self.send([answer.encode(request.request_id, self.connection_field(), to_head=to_head)])
        self.finished()

    def finished(self) -> None:
        """Go on: the present answer was sent."""
        self._request = self.under_way = None
        if self._closes:
            self._close()
        else:
            self._go_on()

    def close_when_finished(self) -> None:
        """Let the present answer be the last one."""
        self._closes = True

    def connection_field(self) -> bytes:
        """The line of the head that says whether the connection goes on."""
        if self._closes:
            return b"connection: close\r\n"
        assert self._request is not None
        return b"connection: keep-alive\r\n" if self._request.is_http_1_0 else b""

    def cut(self, last: bytes) -> None:
        """End the connection within an answer, after these bytes of it."""
        assert self._request is not None
        self.under_way = None
        if self._request.is_http_1_0 and self._closes:
            self.abort()  # its end is the end of the connection
        else:
            if last:
                self.send([last])
            self._close()

    def abort(self) -> None:
        """End the connection now; where something of an answer is missing, by a reset.

        To a client that was told no length anything else could be the end of a whole answer.
        """
        self.under_way = None
        self._outbox.flush()
        if self._transport.is_closing() and not self._transport.get_write_buffer_size():
            return
        if self._request is not None or self._transport.get_write_buffer_size():
            self._transport.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE
            )
        self._transport.abort()

    def cut_off(self) -> None:
        """End the connection, whatever is under way."""
        if self.under_way is not None:
            self.under_way.cut_off()
        else:
            self.abort()

    def drain(self) -> None:
        """End the connection as soon as nothing is under way."""
        parser = self._parser
        if not (self._request or parser.complete or parser.is_in_head or parser.is_in_body):
            self._close()
        self._closes = True

    # --- called by the loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._endpoints.opened(self)
        self.deadline.set(_KEEP_ALIVE_S)

    def data_received(self, data: bytes) -> None:
        """Take what the client sent next."""
        if self._is_closing or self._refused is not None:
            return
        try:
            self._parser.feed(data)
        except Refused as refused:
            self._refused = refused
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """End whatever is under way."""
        self._is_closing = True
        self._endpoints.lost(self)
        self.deadline.close()
        if self.under_way is not None:
            self.under_way.client_gone()

    def eof_received(self) -> None:
        """Send what was answered before the client ended its side; the connection ends with it."""
        self._outbox.flush()

    def pause_writing(self) -> None:
        """Hold back what makes answers longer."""
        self.can_write = False
        if self.under_way is not None:
            self.under_way.pause()

    def resume_writing(self) -> None:
        """Go on."""
        self.can_write = True
        if self.under_way is not None:
            self.under_way.resume()
        else:
            self._go_on()

    # ----------------------------------------------------------------------------------------

    def _on_head(self, request: Request) -> None:
        self._endpoints.find(request)
        self._owes_continue = b"expect" in request.headers and not request.is_http_1_0

    def _go_on(self) -> None:
        """Serve the next request; those after it come when others have had their turn."""
        if self._goes_on:
            return
        complete = self._parser.complete
        if self._is_free() and self.can_write and not self._is_closing:
            if complete:
                self._goes_on = True
                self._serve(complete.pop(0))
                self._goes_on = False
                if self._is_free() and (complete or self._refused is not None):
                    self._loop.call_soon(self._go_on)
            elif self._refused is not None:
                self._refuse(self._refused)
        # The transport knows first that the client is gone.
        if not (self._is_closing or self._transport.is_closing()):
            self._read_on()

    def _is_free(self) -> bool:
        """Whether no answer is under way."""
        return self._request is None

    def _serve(self, request: Request) -> None:
        self._request = request
        self._closes |= not request.keep_alive
        self.deadline.clear()
        self._head_is_due = self._was_in_body = False
        try:
            self._endpoints.find(request)(self, request)
        except Exception:
            _log.exception("internal error")
            if self.under_way is not None:
                self.under_way.client_gone()
            if self._request is request:
                self.answer(internal_error_answer())

    def _read_on(self) -> None:
        """Read unless requests wait, and for no longer than a client may take."""
        reads = not self._parser.complete
        if reads != self._reads:
            self._reads = reads
            (self._transport.resume_reading if reads else self._transport.pause_reading)()
        if self._request is not None:
            return
        head_is_due, self._head_is_due = self._head_is_due, self._parser.is_in_head
        was_in_body, self._was_in_body = self._was_in_body, self._parser.is_in_body
        if self._parser.is_in_body and self._owes_continue:
            self._owes_continue = False
            self.send([_CONTINUE])
        if self._parser.is_in_body:
            # Single bytes do not put the end off.
            if not was_in_body or self._parser.body_size >= self._body_due:
                self._body_due = self._parser.body_size + _BODY_PROGRESS
                self.deadline.set(self._endpoints.head_timeout_s)
        elif not self._parser.is_in_head:
            self.deadline.set(_KEEP_ALIVE_S)
        elif not head_is_due:
            self.deadline.set(self._endpoints.head_timeout_s)

    def _expired(self) -> None:
        if self.under_way is not None:
            self.under_way.expired()
        elif self._is_closing or not (self._parser.is_in_head or self._parser.is_in_body):
            self.abort()
        else:
            too_late = Refused(408, "the request did not come in time")
            self._refuse(self._parser.about_present(too_late))

    def _refuse(self, refused: Refused) -> None:
        """Answer what is not taken, and close.

        What the client still sends is read for a while: to close with it unread would be to take
        the answer back.
        """
        headers = f"allow: {refused.allow}\r\n".encode() if refused.allow else b""
        answer = error_answer(refused.status, str(refused), headers=headers)
        self._closes = True
        connection = self.connection_field()
        self.send([answer.encode(refused.request_id, connection, to_head=refused.to_head)])
        self._is_closing = True
        self.deadline.set(_LINGER_S)
        self._outbox.flush()
        if not self._transport.is_closing():
            self._transport.write_eof()
            if not self._reads:
                self._transport.resume_reading()

    def _close(self) -> None:
        self._is_closing = True
        self._outbox.flush()
        self._transport.close()
        self.deadline.set(_KEEP_ALIVE_S)  # for what is still to be sent
