"""What an engine says its prompt cost, read from the end of an answer that passes by."""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

TAIL_BYTES = 16_384
"""In so many bytes from the end of an answer its usage is found."""

# No prompt has more: to count such would spoil every sum.
_MOST_TOKENS = 2**31 - 1
_KEY = b'"usage"'
_BRACES = rb"\{[^{}]*+(?:%b[^{}]*+)*+\}"
# Objects are found by their braces, of which no string in them has any: to parse from here to
# where an object ends is much slower.
_OBJECT = re.compile(_KEY + rb"\s*+:\s*+(" + _BRACES % (_BRACES % rb"\{[^{}]*+\}") + rb")")


class _Object(msgspec.Struct, gc=False):
    prompt_tokens: object = None
    input_tokens: object = None
    prompt_tokens_details: object = None
    input_tokens_details: object = None


_decoder = msgspec.json.Decoder(_Object)


class Usage(NamedTuple):
    """Tokens of a prompt, and how many of them were cached; None where the engine did not say."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None


def read_usage(tail: bytes) -> Usage:
    """Read the last ``usage`` object in the tail of a JSON document, or of server-sent events.

    A quote inside a JSON string is escaped, so no text of a model or of a user reads like the key.
    """
    at = len(tail)
    while (at := tail.rfind(_KEY, 0, at)) >= 0:
        if found := _OBJECT.match(tail, at):
            return _read(found[1])
    return Usage()


def _read(json: bytes) -> Usage:
    try:
        usage = _decoder.decode(json)
    except (msgspec.DecodeError, RecursionError):
        return Usage()
    tokens, details = usage.prompt_tokens, usage.prompt_tokens_details
    prompt_tokens = _count(usage.input_tokens if tokens is None else tokens)
    details = usage.input_tokens_details if details is None else details
    cached_tokens = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    if prompt_tokens is None or (cached_tokens or 0) > prompt_tokens:
        return Usage(prompt_tokens)
    return Usage(prompt_tokens, cached_tokens)


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None
