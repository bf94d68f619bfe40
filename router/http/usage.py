"""What an engine says its prompt cost, read from the end of an answer that passes by."""

from __future__ import annotations

import json
from typing import NamedTuple

TAIL_BYTES = 16_384
"""In so many bytes from the end of an answer its usage is found."""

_KEY = b'"usage"'
_decoder = json.JSONDecoder()


class Usage(NamedTuple):
    """Tokens of a prompt, and how many of them were cached; None where the engine did not say."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None


def read_usage(tail: bytes) -> Usage:
    """Read the last ``usage`` object in the tail of a JSON document, or of server-sent events.

    A quote inside a JSON string is escaped, so no text of a model or of a user reads like the key.
    """
    end = len(tail)
    while (at := tail.rfind(_KEY, 0, end)) >= 0:
        end = at
        value = tail[at + len(_KEY) :].lstrip()
        if value.startswith(b":") and value[1:].lstrip().startswith(b"{"):
            return _read(value[1:].lstrip())
    return Usage()


def _read(text: bytes) -> Usage:
    try:
        usage, _ = _decoder.raw_decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return Usage()
    prompt_tokens = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    details = usage.get("prompt_tokens_details", usage.get("input_tokens_details"))
    cached_tokens = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    if prompt_tokens is None or (cached_tokens or 0) > prompt_tokens:
        return Usage(prompt_tokens)
    return Usage(prompt_tokens, cached_tokens)


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
