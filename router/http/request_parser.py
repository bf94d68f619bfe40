"""Requests out of what a client sends, by RFC 9112 and no more leniently.

The grammar is llhttp's; here stand the limits, and what it lets pass but two servers could read
in two ways.
"""

from __future__ import annotations

import itertools
import re
import secrets
from collections.abc import Callable
from functools import lru_cache

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser

_TARGET = re.compile(rb"(?:https?://[^/?#]+)?(/[^?#]*)?(?:\?([^#]*))?", re.IGNORECASE)
_HOST = re.compile(rb"[A-Za-z0-9._~%!$&'()*+,;=:\[\]-]*")
_ONCE = frozenset((b"host", b"content-length", b"transfer-encoding"))
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
# Request ids made here: unlike those of any other process, and cheaper than to draw each.
_PROCESS = secrets.token_hex(8).encode()
_requests = itertools.count(1)
# Of a chunk, for its size line and line ends.  Chunks have to carry as much data on average, too:
# each piece is kept until the body is whole.  A body may begin with less.
_CHUNK_OVERHEAD = 16
_CHUNKS_ALLOWANCE = 65_536


class Refused(Exception):
    """A request that is not taken; the connection ends with the answer that says so."""

    def __init__(self, status: int, message: str, *, allow: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.allow = allow
        self.request_id = b""
        self.to_head = False


class Request:
    """One request.  Names of fields are lower case; ``headers`` has of each the first."""

    def __init__(self) -> None:
        self.method = b""
        self.path = b""
        self.query = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self.is_http_1_0 = False
        self.keep_alive = True
        self.request_id = b""


class RequestParser:
    """Parses the requests of one connection, in order.

    ``on_head`` gets each request once its head is there, and may raise Refused.  Complete ones
    are appended to ``complete``.  After a refusal nothing more can be fed.
    """

    def __init__(
        self, *, max_head_bytes: int, max_body_bytes: int, on_head: Callable[[Request], None]
    ) -> None:
        self.complete: list[Request] = []
        self.is_in_head = False
        self.is_in_body = False
        self.is_over = False
        """The last request said that nothing follows it."""
        self._max_head_bytes = max_head_bytes
        self._max_body_bytes = max_body_bytes
        self._on_head = on_head
        self._refused: Refused | None = None
        self._parser = HttpRequestParser(self)
        self._begin()

    def feed(self, data: bytes) -> None:
        """Take what the client sent next.  Raises Refused."""
        request = self._request
        refused: Refused | None = None
        self._head_fed += len(data)
        try:
            self._feed(data)
        except HttpParserError as error:
            if not self.is_over:
                refused = self._refused or Refused(400, f"malformed request: {error}")
        else:
            if self._request is request:
                refused = self._over_limit(len(data))
        if refused is not None:
            raise self.about_present(refused)

    def about_present(self, refused: Refused) -> Refused:
        """Say which request is refused: the one that is being read."""
        refused.request_id = _request_id(self._request.headers)
        refused.to_head = self._request.method == b"HEAD"
        return refused

    def _feed(self, data: bytes) -> None:
        rest: bytes | memoryview = data
        while True:
            try:
                self._parser.feed_data(rest)
            except HttpParserUpgrade as upgrade:
                rest = memoryview(rest)[upgrade.args[0] :]
            else:
                return
            # The request offers another protocol, which is ignored: go on with its body, for
            # which the parser needs a head without the offer.
            self._parser = HttpRequestParser(self)
            self._parser.feed_data(self._framing_head())

    def _framing_head(self) -> bytes:
        names = (b"content-length", b"transfer-encoding", b"connection")
        headers = {name: self._request.headers.get(name, b"") for name in names}
        headers[b"connection"] = b"" if self._request.keep_alive else b"close"
        lines = [b"%b: %b\r\n" % (name, value) for name, value in headers.items() if value]
        version = b"1.0" if self._request.is_http_1_0 else b"1.1"
        return b"POST / HTTP/%b\r\n%b\r\n" % (version, b"".join(lines))

    def _over_limit(self, fed: int) -> Refused | None:
        """Look at what the parser takes without end: a head, chunk extensions, trailers."""
        if self.is_in_body:
            self._body_fed += fed
            chunks = self._chunks * _CHUNK_OVERHEAD
            overhead = self._body_fed - self.body_size - chunks
            if max(overhead, chunks - self.body_size) > self._max_head_bytes + _CHUNKS_ALLOWANCE:
                return Refused(400, "the chunks of the body carry too little data")
        elif self._head_fed > self._max_head_bytes:
            return self._head_too_large()
        return None

    def _head_too_large(self) -> Refused:
        limit = self._max_head_bytes
        if self._request.fields and len(self._target) <= limit:
            return Refused(431, f"the head is above {limit} bytes")
        return Refused(414, f"the request line is above {limit} bytes")

    def _begin(self) -> None:
        self._request = Request()
        self._target = b""
        self._head_fed = 0
        self._pieces: list[bytes] = []
        self.body_size = 0
        """Bytes of the present body so far."""
        self._body_fed = self._chunks = 0

    def _refuse(self, refused: Refused) -> Refused:
        # httptools raises an error of its own.
        self._refused = refused
        return refused

    # --- called by the parser; within a body about the head it needed once more --------------

    def on_message_begin(self) -> None:
        """Take note that a head has begun."""
        self.is_in_head = not self.is_in_body

    def on_url(self, part: bytes) -> None:
        """Take a part of the request target."""
        if not self.is_in_body:
            self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field; trailers are dropped."""
        if self.is_in_body:
            return
        name, value = name.lower(), value.rstrip(b" \t")
        request = self._request
        if name in _ONCE and name in request.headers:
            raise self._refuse(Refused(400, f"more than one {name.decode()}"))
        request.fields.append((name, value))
        request.headers.setdefault(name, value)

    def on_headers_complete(self) -> None:
        """Check the head."""
        if self.is_in_body:
            return
        self.is_in_head = False
        request = self._request
        request.method = self._parser.get_method()
        request.keep_alive = self._parser.should_keep_alive()
        request.request_id = _request_id(request.headers)
        try:
            self._check_size()
            self._check_version()
            self._check_head(request)
            self._on_head(request)
        except Refused as refused:
            raise self._refuse(refused) from None
        self.is_in_body = True

    def _check_size(self) -> None:
        """Look at the size of a head that came in one read, maybe with a body behind it."""
        if self._head_fed > self._max_head_bytes:
            lines = sum(len(name) + len(value) + 4 for name, value in self._request.fields)
            if len(self._target) + lines > self._max_head_bytes:
                raise self._head_too_large()

    def _check_version(self) -> None:
        version = self._parser.get_http_version()
        if version not in ("1.0", "1.1"):
            raise Refused(505, f"HTTP/{version} is not spoken here: expected HTTP/1.1")
        self._request.is_http_1_0 = version == "1.0"

    def _check_head(self, request: Request) -> None:
        headers = request.headers
        if request.method == b"CONNECT":
            raise Refused(501, "CONNECT is not offered")
        host = headers.get(b"host")
        if host is None and not request.is_http_1_0:
            raise Refused(400, "Host is missing")
        if host is not None and not _is_host(host):
            raise Refused(400, "malformed Host")
        target = _path_and_query(self._target)
        if target is None:
            raise Refused(400, "malformed request target")
        request.path, request.query = target
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or request.is_http_1_0):
            raise Refused(501, "Transfer-Encoding must be chunked alone, in HTTP/1.1")
        if int(headers.get(b"content-length", b"0")) > self._max_body_bytes:
            raise self._body_too_large()
        expected = headers.get(b"expect", b"100-continue")
        if expected.lower() != b"100-continue":
            raise Refused(417, "Expect can only be 100-continue")

    def _body_too_large(self) -> Refused:
        return Refused(413, f"the body is above {self._max_body_bytes} bytes")

    def on_chunk_header(self) -> None:
        """Count a chunk."""
        self._chunks += 1

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self.body_size += len(piece)
        if self.body_size > self._max_body_bytes:
            raise self._refuse(self._body_too_large())
        self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """Let the request go."""
        if self._parser.should_upgrade():
            return  # the body is still to come
        self.is_in_body = False
        request, pieces = self._request, self._pieces
        request.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.complete.append(request)
        self.is_over = not request.keep_alive
        self._begin()


# Few differ, and each comes very often.
@lru_cache(maxsize=256)
def _is_host(value: bytes) -> bool:
    return _HOST.fullmatch(value) is not None


@lru_cache(maxsize=256)
def _path_and_query(target: bytes) -> tuple[bytes, bytes] | None:
    match = _TARGET.fullmatch(target)
    return match and (match[1] or b"/", match[2] or b"")


def _request_id(headers: dict[bytes, bytes]) -> bytes:
    given = headers.get(b"x-request-id")
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given
    return b"%b%016x" % (_PROCESS, next(_requests))
