"""Conversations read from files of JSON lines, one conversation a line.

Both common layouts are read: OpenAI style (``messages`` of ``role`` and ``content``, with
optional ``tools``) and ShareGPT style (``conversations`` of ``from`` and ``value``).
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from prefix_cache.replay.json_lines import Unexpected, kind, malformed, numbered_lines, parse
from router.turn import MAX_KEY_CHARACTERS

Role = Literal["system", "user", "assistant", "tool"]

_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}


@dataclass(frozen=True)
class Message:
    """One message; ``text`` is all that is said in it: reasoning, content, tool calls."""

    role: Role
    text: str


@dataclass(frozen=True)
class Conversation:
    """A whole conversation; ``name`` is unique within its file, ``tools`` is "" for none."""

    name: str
    tools: str
    messages: tuple[Message, ...]


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Read a ``.jsonl`` or ``.jsonl.gz`` file line by line; blank lines are skipped.

    A conversation is named by its ``id``, or by its line when it has none, an earlier one has
    the same, or it is longer than a router takes.  Raises MalformedFile when the file cannot be
    read, a line is no conversation, or there is none; it names the file, the line (from 1) and
    what was expected.
    """
    names: set[str] = set()
    for number, line in numbered_lines(path):
        try:
            conversation = conversation_of(parse(line), f"line {number}")
        except Unexpected as error:
            raise malformed(path, str(error), number) from None
        name = free_name(conversation.name, names, number)
        names.add(name)
        yield replace(conversation, name=name)
    if not names:
        raise malformed(path, "no conversation in it; expected one a line, as JSON")


def free_name(name: str, taken: set[str], line: int) -> str:
    """Return a name that is not taken, and that a router takes."""
    while name in taken or len(name) > MAX_KEY_CHARACTERS:
        name = f"line {line}" if len(name) > MAX_KEY_CHARACTERS else f"{name} (line {line})"
    return name


def conversation_of(value: Any, default_name: str) -> Conversation:
    """Return the conversation that a JSON object holds.  Raises Unexpected."""
    if not isinstance(value, dict):
        raise Unexpected(f"expected a JSON object, got {kind(value)}")
    key = "messages" if "messages" in value else "conversations"
    messages = value.get(key)
    if not isinstance(messages, list):
        found = f"got {kind(messages)}" if key in value else "got neither"
        raise Unexpected(f'expected "messages" or "conversations" with a list, {found}')
    said = [message_of(message, f"{key}[{index}]") for index, message in enumerate(messages)]
    if isinstance(system := value.get("system"), str | list) and system:
        said.insert(0, message_of({"role": "system", "content": system}, "system"))
    name = value.get("id")
    return Conversation(
        name=_as_text(name) if isinstance(name, str | int) and name != "" else default_name,
        tools=_lines(value.get("tools"), value.get("functions")),
        messages=tuple(said),
    )


def message_of(value: Any, where: str) -> Message:
    """Return the message that the JSON object at ``where`` holds.  Raises Unexpected."""
    if not isinstance(value, dict):
        raise Unexpected(f"{where}: expected an object, got {kind(value)}")
    said_by = value.get("role", value.get("from"))
    role = _ROLES.get(said_by.lower()) if isinstance(said_by, str) else None
    if role is None:
        expected = ", ".join(_ROLES)
        raise Unexpected(f"{where}: role is {reprlib.repr(said_by)}; expected one of {expected}")
    content = value.get("content", value.get("value"))
    if isinstance(content, list):
        text = "".join(_part_text(part) for part in content)
    elif isinstance(content, str | None):
        text = _as_text(content or "")
    else:
        raise Unexpected(f"{where}: expected content of text, parts or null, got {kind(content)}")
    calls = value.get("tool_calls"), value.get("function_call")
    return Message(role, _lines(_reasoning(value), text, *calls))


def _reasoning(message: dict[str, Any]) -> str:
    """What the engine generated before the answer, under the name that its server gives it."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    return reasoning if isinstance(reasoning, str) else ""


def _lines(*values: Any) -> str:
    """The text of each value that is not empty, on lines of its own."""
    return "\n".join(_as_text(value) for value in values if value)


def _part_text(part: Any) -> str:
    """Text of one part; a part without text (an image) stands there as its JSON.

    So that messages that differ in such a part differ.
    """
    text = part.get("text") if isinstance(part, dict) else part
    return _as_text(text if isinstance(text, str) else part)


def _as_text(value: Any) -> str:
    """Text as it is, anything else as JSON; a lone surrogate, which has no UTF-8, becomes "?"."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()
