"""Heads as they are passed on: what concerns one connection only stays behind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from prefix_cache.client import RouteReason
from router.http.answers import decision_lines, status_line
from router.http.request_parser import Request
from router.open_routes import OpenRoute

Fields = Sequence[tuple[bytes, bytes]]
"""Names in lower case, with their values."""

_HOP_BY_HOP = frozenset(
    (b"connection", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade")
)
# Both sides get these from us.
_OURS = frozenset((b"content-length", b"x-request-id"))
# Some servers take an underscore for a dash.
_NOT_TO_CLIENT = _HOP_BY_HOP | _OURS | {name.replace(b"-", b"_") for name in _HOP_BY_HOP | _OURS}
# The usage in an answer has to be readable, so it must not come compressed.
_NOT_TO_ENGINE = _NOT_TO_CLIENT | {b"host", b"expect", b"accept-encoding", b"accept_encoding"}
_DROPPED_PREFIXES = (b"proxy-", b"proxy_", b"x-prefix-cache-", b"x_prefix_cache_")
_UNPRINTABLE = re.compile(rb"[^\x21-\x7e]")


def engine_head(request: Request, origin: bytes) -> bytes:
    """The head of ``request`` for the engine at ``origin`` (``host:port``)."""
    target = request.path + (b"?" + request.query if request.query else b"")
    return b"%b %b HTTP/1.1\r\nhost: %b\r\n%bx-request-id: %b\r\ncontent-length: %d\r\n\r\n" % (
        request.method,
        target,
        origin,
        _kept(request.fields, _NOT_TO_ENGINE),
        request.request_id,
        len(request.body),
    )


def client_head(status: int, fields: Fields, ours: bytes) -> bytes:
    """The head of an engine's answer for the client; ``ours`` are header lines with their ends."""
    return b"%b%b%b\r\n" % (status_line(status), _kept(fields, _NOT_TO_CLIENT), ours)


def route_lines(route: OpenRoute) -> bytes:
    """The header lines that say where a route leads, and why."""
    return _decision_lines(route.node.name, route.decision.reason)


@lru_cache(maxsize=1024)
def _decision_lines(node: str, reason: RouteReason) -> bytes:
    # What cannot stand in a header becomes a question mark.
    name = _UNPRINTABLE.sub(b"?", node.encode())
    return decision_lines(name, reason.name.lower().encode())


def _kept(fields: Fields, dropped: frozenset[bytes]) -> bytes:
    for name, value in fields:
        if name == b"connection":
            dropped |= {token.strip().lower() for token in value.split(b",")}
    return b"".join(
        [
            b"%b: %b\r\n" % field
            for field in fields
            if field[0] not in dropped and not field[0].startswith(_DROPPED_PREFIXES)
        ]
    )
