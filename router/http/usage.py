"""What an engine says its prompt cost, read from the end of an answer that passes by."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

TAIL_BYTES = 16_384
"""In so many bytes from the end of an answer its usage is found."""

# No prompt has more: to count such would spoil every sum.
_MOST_TOKENS = 2**31 - 1
_KEY = b'"usage"'
_BRACES = rb"\{[^{}]*+(?:%b[^{}]*+)*+\}"
_DETAILS = ("prompt_tokens_details", "input_tokens_details")
# Objects are found by their braces, of which no string in them has any: to parse from here to
# where an object ends is much slower.
_OBJECT = re.compile(_KEY + rb"\s*+:\s*+(" + _BRACES % (_BRACES % rb"\{[^{}]*+\}") + rb")")


class Usage(NamedTuple):
    """Tokens of a prompt, and how many of them were cached; None where the engine did not say."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None


_NOTHING = Usage()


def read_usage(tail: bytes) -> Usage:
    """Read what the tail of a JSON document, or of server-sent events, says of the prompt.

    The last ``usage`` object counts.  Where cached tokens are said more than once, as by the
    stages of a prefill, each says what it had of the same prompt: the most of them were cached.
    A quote inside a JSON string is escaped, so no text of a model or of a user reads like the key.
    """
    usage, at = _NOTHING, len(tail)
    while (at := tail.rfind(_KEY, 0, at)) >= 0:
        if found := _OBJECT.match(tail, at):
            said = _read(found[1])
            if usage.prompt_tokens is None:
                usage = said
            elif said.cached_tokens is not None:
                tokens = _most(usage.prompt_tokens, usage.cached_tokens, said.cached_tokens)
                usage = Usage(usage.prompt_tokens, tokens)
    return usage


def _read(json: bytes) -> Usage:
    try:
        said: Mapping[str, object] = msgspec.json.decode(json)
    except (msgspec.DecodeError, RecursionError):
        return _NOTHING
    tokens = said.get("prompt_tokens")
    prompt_tokens = _count(said.get("input_tokens") if tokens is None else tokens)
    if prompt_tokens is None:
        return _NOTHING
    cached_tokens = None
    for name in _DETAILS:
        details = said.get(name)
        if isinstance(details, dict):
            cached_tokens = _most(prompt_tokens, cached_tokens, details.get("cached_tokens"))
    return Usage(prompt_tokens, cached_tokens)


def _most(prompt_tokens: int, known: int | None, said: object) -> int | None:
    """The larger number of cached tokens; what is none, or is more than the prompt, is unsaid."""
    count = _count(said)
    if count is None or count > prompt_tokens:
        return known
    return count if known is None else max(known, count)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None
