"""Bodies of requests: what of them is read, and of which type; what else they hold is ignored."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from prefix_cache.errors import InvalidRequest

Objects = list[dict[str, Any]]
Messages = Annotated[Objects, msgspec.Meta(min_length=1)]
Length = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Salt = Annotated[str, msgspec.Meta(max_length=1024)]  # every prefix that is cached keeps its own
TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]

# Where msgspec says that something is amiss: at a path, or a field that is not there.
_FIELD = re.compile(r"at `\$\.(\w+)|required field `(\w+)`$")


class Body(msgspec.Struct, kw_only=True):
    """What all bodies have: the model, and a salt that keeps KV apart."""

    model: str
    cache_salt: Salt | None = None


class StreamOptions(msgspec.Struct):
    """What a stream holds besides the answer."""

    include_usage: bool = False


class GeneratingBody(Body, kw_only=True):
    """What asks for an answer; fields that OpenAI does not have are vLLM's.

    Beam search has a width of ``n``.  With ``return_token_ids`` an answer also says the tokens of
    prompt and answer.
    """

    max_tokens: Length | None = None
    n: Count | None = 1
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = False
    use_beam_search: bool | None = False
    return_token_ids: bool | None = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None

    @property
    def num_answers(self) -> int:
        """How many answers there are to be."""
        return self.n or 1

    @property
    def wants_usage(self) -> bool:
        """Whether a stream is to end with the usage."""
        return self.stream_options is not None and self.stream_options.include_usage


class Function(msgspec.Struct):
    """A function that can be called; ``parameters`` is a JSON schema."""

    name: str
    parameters: dict[str, Any] | None = None


class Tool(msgspec.Struct):
    """A tool, or the one that is to be called."""

    function: Function


class CompletionBody(GeneratingBody, kw_only=True):
    """``/v1/completions``: a prompt of text or of token ids."""

    prompt: str | list[TokenId]


class ChatBody(GeneratingBody, kw_only=True):
    """``/v1/chat/completions``."""

    messages: Messages
    tools: Objects | None = None
    tool_choice: Literal["none", "auto", "required"] | Tool | None = None
    max_completion_tokens: Length | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeBody(Body, kw_only=True):
    """``/tokenize``: of a prompt, or of a chat."""

    prompt: str | None = None
    messages: Messages | None = None
    tools: Objects | None = None
    add_generation_prompt: bool = True
    add_special_tokens: bool = True

    def __post_init__(self) -> None:
        if self.prompt is None and self.messages is None:
            raise ValueError("Expected one of `prompt` and `messages`")


AnyBody = TypeVar("AnyBody", bound=Body)
_Document = TypeVar("_Document")


def read_body(kind: type[_Document], body: bytes) -> _Document:
    """Read a body.  Raises ``InvalidRequest`` that names the field and what was expected."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        field = _FIELD.search(str(error))
        raise InvalidRequest(
            f"the body cannot be used: {error}", param=field and (field[1] or field[2])
        ) from None
