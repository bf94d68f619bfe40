"""An engine's answer as its client gets it: framed anew, and otherwise as it is."""

from __future__ import annotations

import re

from router.http.engine_connection import EngineConnection
from router.http.heads import client_head
from router.http.usage import TAIL_BYTES, Usage, read_usage

_LAST_CHUNK = b"0\r\n\r\n"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
# The last event of a chat, or of a response: only that one counts its tokens.  Line ends inside
# JSON are escaped.
_LAST_EVENT = re.compile(
    rb'(?:(?:\A|\n)data: ?\[DONE\]|"(?:response\.completed"|input_tokens": ?[0-9])[^\r\n]*+)\s*+\Z'
)


class Relay:
    """Makes what is sent to the client of what came from the engine.

    A body of unsaid length is sent in chunks, or, to a client that cannot read those, up to the
    end of its connection.
    """

    __slots__ = ("_is_chunked", "_is_event_stream", "_length", "_tail", "ends_with_connection")

    def __init__(self, engine: EngineConnection, *, can_chunk: bool) -> None:
        self._length = engine.content_length
        self._is_chunked = can_chunk and self._length is None
        self.ends_with_connection = not can_chunk and self._length is None
        content_type = engine.headers.get(b"content-type", b"")
        self._is_event_stream = content_type.startswith(b"text/event-stream")
        self._tail = b""

    def head(self, engine: EngineConnection, ours: bytes) -> bytes:
        """The head, with header lines of ours."""
        if self._is_chunked:
            ours += b"transfer-encoding: chunked\r\n"
        elif self._length is not None and engine.status != 204:
            ours += b"content-length: %d\r\n" % self._length
        return client_head(engine.status, engine.fields, ours)

    def piece(self, data: bytes) -> bytes:
        """The next piece of the body."""
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        return b"%x\r\n%b\r\n" % (len(data), data) if self._is_chunked else data

    def end(self) -> bytes:
        """The end of a whole body."""
        return _LAST_CHUNK if self._is_chunked else b""

    def has_said_all(self) -> bool:
        """Whether the last event of a stream has passed: clients do not wait for its end."""
        is_at_end = self._tail.endswith(_EVENT_ENDS)
        return self._is_event_stream and is_at_end and _LAST_EVENT.search(self._tail) is not None

    def broken_off(self, error: bytes) -> bytes:
        """What comes last of a body that is not whole: a stream of events can say so."""
        if not (self._is_event_stream and self._is_chunked):
            return b""
        if self._tail and not self._tail.endswith(_EVENT_ENDS):
            return b""  # to a client the error would end the event that was cut
        return self.piece(b"data: %b\n\n" % error)

    def usage(self) -> Usage:
        """What the engine said of the prompt, at the end of the body."""
        return read_usage(self._tail)
