"""Bodies of requests, as far as a test engine reads them; what else they hold is ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec

from prefix_cache.errors import InvalidArgument

_Objects = list[dict[str, Any]]
_Messages = Annotated[_Objects, msgspec.Meta(min_length=1)]
_Length = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
_TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_Text = str | list[_TokenId]

DEFAULT_LENGTH = 16


class Body(msgspec.Struct, kw_only=True):
    """What all bodies have: the model, and a salt that keeps KV apart."""

    model: str
    cache_salt: str = ""


class StreamOptions(msgspec.Struct):
    """What a stream holds besides the answer."""

    include_usage: bool = False


class Function(msgspec.Struct):
    """A function that can be called; ``parameters`` is a JSON schema."""

    name: str
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct):
    """A tool, or the one that is to be called."""

    function: Function


class CompletionBody(Body, kw_only=True):
    """``/v1/completions``: a prompt of text or of token ids."""

    prompt: _Text
    max_tokens: _Length | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = 1


class ChatBody(Body, kw_only=True):
    """``/v1/chat/completions``."""

    messages: _Messages
    tools: list[dict[str, Any]] | None = None
    tool_choice: Literal["none", "auto", "required"] | Tool | None = None
    max_tokens: _Length | None = None
    max_completion_tokens: _Length | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = 1


class ResponseBody(Body, kw_only=True):
    """``/v1/responses``."""

    input: str | _Messages
    instructions: str | None = None
    max_output_tokens: _Length | None = None
    stream: bool | None = False


class EmbeddingBody(Body, kw_only=True):
    """``/v1/embeddings``: one text or several, each of text or of token ids."""

    input: str | list[str | _TokenId | list[_TokenId]]
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: _Length | None = None


class TokenizeBody(Body, kw_only=True):
    """``/tokenize``: of a prompt, or of a chat."""

    prompt: str | None = None
    messages: _Objects = []
    tools: _Objects | None = None
    add_generation_prompt: bool = True


AnyBody = TypeVar("AnyBody", bound=Body)


def read_body(kind: type[AnyBody], body: bytes) -> AnyBody:
    """Read a body.  Raises ``InvalidArgument`` that names the field and what was expected."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the body cannot be used: {error}") from None


def read_functions(tools: list[dict[str, Any]]) -> list[Function]:
    """Return the functions of ``tools``.  Raises ``InvalidArgument``."""
    try:
        return [tool.function for tool in msgspec.convert(tools, list[Tool])]
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"tools cannot be used: {error}", name="tools") from None
