"""What the forms of an answer have in common: usage, events of a stream."""

from __future__ import annotations

import time
from typing import Any, Protocol

import msgspec

from prefix_cache.testing.worker import Decoding


class Form(Protocol):
    """How one request is answered: the texts that a client sends and gets, around ``Decoding``.

    ``prompt`` and ``answer`` are the tokens, uint32 little-endian; token ``n`` of the answer is
    what ``piece(n)`` sends.
    """

    prompt: bytes
    answer: bytes
    stream: bool

    def whole(self, decoding: Decoding) -> dict[str, Any]:
        """Return the answer to a request that wants no stream."""

    def opening(self) -> list[bytes]:
        """Return the events before the first token."""

    def piece(self, number: int) -> list[bytes]:
        """Return the events that token ``number`` brings."""

    def closing(self, decoding: Decoding) -> list[bytes]:
        """Return the events after the last token."""


DONE = b"data: [DONE]\n\n"


def event(data: dict[str, Any], name: str = "") -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


def envelope(kind: str, request_id: str, model: str) -> dict[str, Any]:
    """Return what every chunk and answer begins with."""
    return {"id": request_id, "object": kind, "created": int(time.time()), "model": model}


def usage(decoding: Decoding) -> dict[str, Any]:
    """Return the tokens of an answer that is complete."""
    return {
        "prompt_tokens": decoding.prompt_tokens,
        "completion_tokens": decoding.decoded,
        "total_tokens": decoding.prompt_tokens + decoding.decoded,
        "prompt_tokens_details": {"cached_tokens": decoding.cached_tokens},
    }
