"""The id of a request, by which its client and we know it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping


def request_id(headers: Mapping[str, str]) -> str:
    """Return what ``X-Request-Id`` says, or one of our own where that says none in ASCII."""
    given = headers.get("X-Request-Id", "")
    return given if given and given.isascii() else uuid.uuid4().hex
