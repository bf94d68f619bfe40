"""What a client is told when no node serves it."""

from __future__ import annotations

from prefix_cache.errors import NoNodeAvailable
from router.http.answers import Answer, decision_lines, error_answer, error_document
from router.http.engine_connection import EngineConnection
from router.http.heads import route_lines
from router.open_routes import OpenRoute

_RETRY_AFTER = b"retry-after: 1\r\n"
_NO_NODE = decision_lines(b"-", b"no_node_available")
_NODE_FAILED = "node_failed"


def no_node_answer(error: NoNodeAvailable) -> Answer:
    """No node can take a request now."""
    return error_answer(
        503, str(error), code="no_node_available", headers=_RETRY_AFTER, decision=_NO_NODE
    )


def failed_answer(status: int, route: OpenRoute, why: str) -> Answer:
    """The node of a route broke, or fell silent, before its answer began."""
    message = f"node {route.node.name} failed: {why}"
    return error_answer(status, message, code=_NODE_FAILED, decision=route_lines(route))


def unavailable_answer(route: OpenRoute, engine: EngineConnection) -> Answer:
    """The engine of a route said that it cannot, and maybe when it can."""
    status, headers = engine.status, b""
    if retry_after := engine.headers.get(b"retry-after"):
        headers = b"retry-after: %b\r\n" % retry_after
    elif status == 503:
        headers = _RETRY_AFTER
    return error_answer(
        status,
        f"node {route.node.name} answered {status}",
        code="node_unavailable",
        headers=headers,
        decision=route_lines(route),
    )


def overloaded_answer(error: OSError, route: OpenRoute) -> Answer:
    """The router itself is at a limit."""
    return error_answer(
        503,
        f"the router has no socket left: {error.strerror}",
        code="router_overloaded",
        headers=_RETRY_AFTER,
        decision=route_lines(route),
    )


def broken_off(why: str) -> bytes:
    """The JSON of the error of a node that broke within its answer."""
    return error_document(502, f"the answer broke off: {why}", code=_NODE_FAILED)
