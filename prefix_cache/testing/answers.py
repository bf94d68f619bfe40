"""Answers made of a prompt alone: the same prompt is always answered the same."""

from __future__ import annotations

from random import Random
from typing import Any

import xxhash

from prefix_cache.openai_api.bodies import Function
from prefix_cache.plain_template import canonical_json

_WORDS = (
    *("the", "block", "holds", "a", "prefix", "of", "every", "turn", "and", "one", "node"),
    *("keeps", "it", "warm", "while", "tokens", "pass", "by", "in", "order", "so", "nothing"),
    *("is", "computed", "twice", "here", "again", "today", "then", "more", "come", "soon"),
)


def words(prompt: bytes, length: int) -> str:
    """Return so many characters of ASCII words, each of which is one token."""
    random = Random(xxhash.xxh3_64_intdigest(prompt))
    return " ".join(random.choices(_WORDS, k=length))[:length]


def tool_call(prompt: bytes, function: Function) -> dict[str, Any]:
    """Return a call of the function, in the form of a message's ``tool_calls``.

    Its arguments are JSON that has all that the function's schema requires.
    """
    arguments = canonical_json(_example(function.parameters or {}, words(prompt, 12)))
    return {
        "id": f"call_{xxhash.xxh3_64_hexdigest(prompt)}",
        "type": "function",
        "function": {"name": function.name, "arguments": arguments},
    }


def _example(schema: Any, word: str) -> Any:
    """A value that a JSON schema allows, as far as types, enums and what is required go."""
    if not isinstance(schema, dict):
        return word
    if choices := schema.get("enum"):
        return choices[0]
    properties = schema.get("properties") or {}
    match schema.get("type", "object"):
        case "object":
            return {
                name: _example(properties.get(name), word) for name in schema.get("required", ())
            }
        case "array":
            return []
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return word
