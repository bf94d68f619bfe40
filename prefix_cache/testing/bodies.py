"""Bodies that the test engine alone reads, or reads more narrowly than others."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from prefix_cache.errors import InvalidRequest
from prefix_cache.openai_api import bodies
from prefix_cache.openai_api.bodies import Body, Function, Length, Messages, TokenId, Tool

DEFAULT_LENGTH = 16


class CompletionBody(bodies.CompletionBody, kw_only=True):
    """``/v1/completions`` with one answer."""

    n: Literal[1] | None = 1


class ChatBody(bodies.ChatBody, kw_only=True):
    """``/v1/chat/completions`` with one answer."""

    n: Literal[1] | None = 1


class ResponseBody(Body, kw_only=True):
    """``/v1/responses``."""

    input: str | Messages
    instructions: str | None = None
    max_output_tokens: Length | None = None
    stream: bool | None = False


class EmbeddingBody(Body, kw_only=True):
    """``/v1/embeddings``: one text or several, each of text or of token ids."""

    input: str | list[str | TokenId | list[TokenId]]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: Length | None = None


def read_functions(tools: list[dict[str, Any]]) -> list[Function]:
    """Return the functions of ``tools``.  Raises ``InvalidRequest``."""
    try:
        return [tool.function for tool in msgspec.convert(tools, list[Tool])]
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"tools cannot be used: {error}", param="tools") from None
