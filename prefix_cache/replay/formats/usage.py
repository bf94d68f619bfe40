"""What engines and their services say of the tokens of a request, under several names."""

from __future__ import annotations

from typing import Any

from prefix_cache.replay.formats.fields import MAX_LENGTH, as_object, whole
from prefix_cache.replay.formats.request import Usage

_PLACES = ("usage", "meta_info")


def usage_of(record: dict[str, Any]) -> Usage | None:
    """Return the usage that a record of a request holds; None if it holds none.

    OpenAI style says ``prompt_tokens`` and, in its details, ``cached_tokens`` among them;
    Anthropic style says ``input_tokens`` without those read from or written to the cache.
    Raises Unexpected for numbers that are none.
    """
    usage = next((record[name] for name in _PLACES if isinstance(record.get(name), dict)), None)
    if usage is None:
        return None
    if "cache_read_input_tokens" in usage or "cache_creation_input_tokens" in usage:
        cached = _count(usage, "cache_read_input_tokens")
        written = _count(usage, "cache_creation_input_tokens")
        return Usage(cached + written + _count(usage, "input_tokens"), cached)
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or usage
    prompt = "prompt_tokens" if "prompt_tokens" in usage else "input_tokens"
    prompt_tokens = _count(usage, prompt)
    return Usage(prompt_tokens, _count(as_object(details), "cached_tokens", prompt_tokens))


def _count(usage: dict[str, Any], name: str, most: int = MAX_LENGTH) -> int:
    return whole(name, usage.get(name) or 0, 0, most)
