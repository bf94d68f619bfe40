"""Answers in JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from aiohttp import web


def json_response(
    document: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return the answer that holds a document."""
    return web.Response(
        status=status,
        body=msgspec.json.encode(document),
        content_type="application/json",
        headers=headers,
    )
