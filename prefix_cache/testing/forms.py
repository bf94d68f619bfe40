"""What the answers of all paths have in common."""

from __future__ import annotations

from typing import Any, Protocol

from prefix_cache.openai_api import answers
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


def usage(decoding: Decoding) -> dict[str, Any]:
    """Return the tokens of an answer that is complete."""
    return answers.usage(decoding.prompt_tokens, decoding.cached_tokens, decoding.decoded)
