"""One connection to an engine: sends a request, parses its answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from httptools import HttpParserError, HttpResponseParser

if TYPE_CHECKING:
    from router.http.engine_pool import EnginePool

_BODILESS = (204, 304)
_BROKE = "the connection broke"
# An engine that closes an idle connection does so before it has read the request: at once.
_STALE_S = 0.1


class Malformed(Exception):
    """An answer that could be read in two ways, or in none."""


class AnswerReader(Protocol):
    """Who sent the request."""

    def engine_answered(self, engine: EngineConnection, piece: bytes, *, is_whole: bool) -> None:
        """Take what came of the answer: its head is in ``engine`` now, ``piece`` is of its body."""

    def engine_failed(self, why: str, *, was_stale: bool) -> None:
        """The answer will not come, or not whole.

        ``was_stale``: the engine closed a connection kept alive as the request was on its way.
        """


class EngineConnection(asyncio.Protocol):
    """A connection to one engine, for one request at a time.

    The head of the present answer is in ``status``, ``fields``, ``headers`` (of each field the
    first) and ``content_length`` (None: unsaid) once the first piece is handed over.
    """

    def __init__(self, pool: EnginePool, url: str) -> None:
        self._pool = pool
        self.url = url
        self.origin = url.partition("://")[2].encode()
        """Its ``host:port``."""
        self.idle_since = 0.0
        self._is_made = False
        self._reader: AnswerReader | None = None
        self._parser = HttpResponseParser(self)
        self._served = 0
        self._begin()

    def _begin(self) -> None:
        self.status = 0
        self.fields: list[tuple[bytes, bytes]] = []
        self.headers: dict[bytes, bytes] = {}
        self.content_length: int | None = None
        self._has_head = self._is_whole = self._ends_at_close = self._is_spoiled = False
        self._received = 0
        self._pieces: list[bytes] = []

    def send(self, reader: AnswerReader, head: bytes, body: bytes) -> None:
        """Send a request; ``reader`` gets the answer."""
        if self.is_closing:
            reader.engine_failed(_BROKE, was_stale=False)
            return
        self._reader = reader
        self._begin()
        self._sent_at = self._pool.loop.time()
        self._pool.outbox.put(self._transport, (head, body))

    def hand_over(self, reader: AnswerReader) -> None:
        """Let another reader have the rest of an answer that is not whole yet."""
        self._reader = reader

    def cancel(self) -> None:
        """Close, whatever is under way; nobody is told."""
        self._reader = None
        if self._is_made:
            self._transport.abort()

    def close(self) -> None:
        """Close when idle."""
        self._transport.close()

    @property
    def is_closing(self) -> bool:
        """Whether it cannot be used any more."""
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        """Leave what the engine sends next in the network."""
        if not self.is_closing:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read on."""
        if not self.is_closing:
            self._transport.resume_reading()

    # --- called by the loop -----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._is_made = True

    def data_received(self, data: bytes) -> None:
        """Hand over what came of the answer."""
        reader = self._reader
        if reader is None:  # nothing was asked
            self._transport.abort()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
            if not self._has_head and self._received > self._pool.max_head_bytes:
                raise Malformed(f"its head is above {self._pool.max_head_bytes} bytes")
        except (HttpParserError, Malformed) as error:
            if not self._is_whole:
                self.cancel()
                # What the parser's callbacks raise is the context of its own error.
                why = f"malformed answer: {error.__context__ or error}"
                reader.engine_failed(why, was_stale=False)
                return
            self._is_spoiled = True
        if not self._has_head:
            return
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces = []
        is_whole = self._is_whole
        if is_whole:
            self._reader = None
            self._release()
        reader.engine_answered(self, piece, is_whole=is_whole)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell who waits for an answer."""
        self._pool.forget(self)
        reader, self._reader = self._reader, None
        if reader is None:
            return
        if self._ends_at_close and exc is None:
            reader.engine_answered(self, b"", is_whole=True)
            return
        why = _BROKE if exc is None else f"{_BROKE}: {exc}"
        is_soon = self._pool.loop.time() - self._sent_at < _STALE_S
        was_stale = is_soon and self._served > 0 and self._received == 0
        reader.engine_failed(why, was_stale=was_stale)

    def _release(self) -> None:
        """Keep the connection for the next request if both sides agree that none is under way."""
        unsent = self._transport.get_write_buffer_size()
        if self._is_spoiled or unsent or not self._keeps_alive:
            self._transport.abort()
        else:
            self._served += 1
            self._pool.give_back(self)

    # --- called by the parser ---------------------------------------------------------------

    def on_message_begin(self) -> None:
        """Refuse an answer that was not asked for."""
        if self._is_whole:
            raise Malformed("there is more than one")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a field of the head."""
        if not self._has_head:  # trailers are dropped
            name, value = name.lower(), value.rstrip(b" \t")
            if name == b"transfer-encoding" and name in self.headers:
                raise Malformed("more than one Transfer-Encoding")
            self.fields.append((name, value))
            self.headers.setdefault(name, value)

    def on_headers_complete(self) -> None:
        """Take the framing; refuse what is ambiguous."""
        self.status = self._parser.get_status_code()
        if self.status == 101:
            raise Malformed("it takes up another protocol, which nobody asked for")
        if self.status < 200:
            return
        if self.status > 599 or self._parser.get_http_version() not in ("1.0", "1.1"):
            raise Malformed(f"status {self.status}, HTTP/{self._parser.get_http_version()}")
        coding = self.headers.get(b"transfer-encoding")
        if coding is not None and coding.lower() != b"chunked":
            raise Malformed(f"Transfer-Encoding {coding!r}, expected chunked alone")
        length = self.headers.get(b"content-length")
        self.content_length = None if length is None else int(length)
        if self.status in _BODILESS:
            self.content_length = 0
        self._keeps_alive = self._parser.should_keep_alive()
        self._ends_at_close = coding is None and self.content_length is None
        self._has_head = True

    def on_body(self, piece: bytes) -> None:
        """Keep a piece until the whole read is parsed."""
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Note that the answer is whole."""
        if self.status < 200:  # 100 Continue and the like
            self.status = 0
            self.fields, self.headers = [], {}
        else:
            self._is_whole = True
