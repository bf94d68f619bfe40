"""Answers of the router itself, errors in the form that OpenAI's clients read."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus

import msgspec

JSON = b"application/json"
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
_STATUS_LINES = {
    status: b"HTTP/1.1 %d %b\r\n" % (status, _PHRASES.get(status, b""))
    for status in range(200, 600)
}


def status_line(status: int) -> bytes:
    """The first line of an answer with a status from 200 to 599."""
    return _STATUS_LINES[status]


def decision_lines(node: bytes, reason: bytes) -> bytes:
    """The header lines that say where a request went, and why."""
    return b"x-prefix-cache-node: %b\r\nx-prefix-cache-reason: %b\r\n" % (node, reason)


NOT_ROUTED = decision_lines(b"-", b"not_routed")
"""The decision about a request that the router answers by itself."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    ``decision`` are the header lines that say where the request went, and why; ``headers`` what
    else there is besides content type and length.  Each line has its end.
    """

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: bytes = b""
    decision: bytes = NOT_ROUTED

    def encode(self, request_id: bytes, connection: bytes, *, to_head: bool) -> bytes:
        """The bytes to send; ``connection`` is a header line or empty.

        The answer to a HEAD request ends with its head.
        """
        return b"%bcontent-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b%b\r\n%b" % (
            status_line(self.status),
            self.content_type,
            len(self.body),
            request_id,
            self.decision,
            self.headers,
            connection,
            b"" if to_head else self.body,
        )


def json_answer(document: object, status: int = 200) -> Answer:
    """A document as JSON."""
    return Answer(status, msgspec.json.encode(document))


def error_document(
    status: int, message: str, *, param: str | None = None, code: str | None = None
) -> bytes:
    """The JSON of an error."""
    kind = "invalid_request_error" if status < 500 else "api_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    return msgspec.json.encode({"error": error})


def error_answer(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    headers: bytes = b"",
    decision: bytes = NOT_ROUTED,
) -> Answer:
    """An error."""
    body = error_document(status, message, param=param, code=code)
    return Answer(status, body, headers=headers, decision=decision)


def internal_error_answer(decision: bytes = NOT_ROUTED) -> Answer:
    """A fault of the router's own."""
    return error_answer(500, "internal error, see the router's log", decision=decision)


def router_ends_answer(decision: bytes = NOT_ROUTED) -> Answer:
    """There was no time left for more."""
    return error_answer(503, "the router ends", decision=decision)
