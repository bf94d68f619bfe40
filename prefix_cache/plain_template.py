"""The plain chat template, and tokens that are the bytes of UTF-8.

What the test engine uses, so that a router can make the tokens of its prompts: no model needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from prefix_cache.errors import InvalidArgument

_TEXT_PARTS = ("text", "input_text", "output_text")


def render(
    messages: Sequence[Any], tools: Sequence[Any] = (), *, add_generation_prompt: bool = True
) -> str:
    """Return the prompt of a chat: the tools, each message, and the head of the answer.

    A message is an object with ``role`` and ``content``: text, null, or a list of parts, of which
    those of text are joined and others stand there as JSON.  An assistant's ``tool_calls`` follow
    its content as JSON.  Raises ``InvalidArgument`` for what is no message.
    """
    pieces = [f"<|tools|>\n{canonical_json(tools)}\n"] if tools else []
    pieces += [_render_message(index, message) for index, message in enumerate(messages)]
    if add_generation_prompt:
        pieces.append("<|assistant|>\n")
    return "".join(pieces)


def response_messages(instructions: str | None, given: str | Sequence[Any]) -> list[Any]:
    """Return the messages of a ``/v1/responses`` body: its ``instructions``, then its ``input``.

    An item that is no message, such as the output of a function, is said in JSON by the tool, and
    a call of a function by the assistant.
    """
    messages: list[Any] = [{"role": "system", "content": instructions}] if instructions else []
    if isinstance(given, str):
        return [*messages, {"role": "user", "content": given}]
    return messages + [_as_message(item) for item in given]


def canonical_json(value: Any) -> str:
    """Return JSON without spaces and with its keys in order: the same for equal values."""
    return msgspec.json.encode(value, order="sorted").decode()


def utf8_tokens(text: str) -> bytes:
    """Return the bytes of the text as tokens, one for each: uint32 little-endian."""
    return np.frombuffer(text.encode(), np.uint8).astype("<u4").tobytes()


def _render_message(index: int, message: Any) -> str:
    role = message.get("role") if isinstance(message, Mapping) else None
    if not isinstance(role, str):
        raise InvalidArgument(
            f"messages[{index}] has no role, expected an object with role and content",
            name="messages",
            index=index,
        )
    text = _text(message.get("content"))
    if calls := message.get("tool_calls"):
        text += canonical_json(calls)
    return f"<|{role}|>\n{text}\n"


def _text(content: Any) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "".join(map(_part_text, content))
        case _:
            return canonical_json(content)


def _part_text(part: Any) -> str:
    match part:
        case str():
            return part
        case {"type": kind, "text": str(text)} if kind in _TEXT_PARTS:
            return text
        case _:
            return canonical_json(part)


def _as_message(item: Any) -> Any:
    if not isinstance(item, Mapping) or "role" in item:
        return item
    role = "assistant" if item.get("type") == "function_call" else "tool"
    return {"role": role, "content": canonical_json(item)}
