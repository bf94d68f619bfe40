"""Conversations read from files of JSON lines, one conversation a line.

Both common layouts are read: OpenAI style (``messages`` of ``role`` and ``content``, with
optional ``tools``) and ShareGPT style (``conversations`` of ``from`` and ``value``).
"""

from __future__ import annotations

import gzip
import json
import reprlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from prefix_cache.errors import MalformedFile
from router.grpc_api import MAX_KEY_CHARACTERS

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
    for number, line in _numbered_lines(path):
        try:
            conversation = _conversation(_parse(line), f"line {number}")
        except _Unexpected as error:
            raise _malformed(path, str(error), number) from None
        name = _free_name(conversation.name, names, number)
        names.add(name)
        yield replace(conversation, name=name)
    if not names:
        raise _malformed(path, "no conversation in it; expected one a line, as JSON")


def _free_name(name: str, taken: set[str], line: int) -> str:
    while name in taken or len(name) > MAX_KEY_CHARACTERS:
        name = f"line {line}" if len(name) > MAX_KEY_CHARACTERS else f"{name} (line {line})"
    return name


class _Unexpected(Exception):
    """What is wrong with the value of a line, and what was expected."""


def _malformed(path: Path, problem: str, line: int | None = None) -> MalformedFile:
    place = f"{path}, line {line}" if line else str(path)
    return MalformedFile(f"{place}: {problem}", file=str(path), line=line)


def _numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and content of the lines that are not blank."""
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise _malformed(path, f"no whole gzip stream ({error})", number + 1) from None
    except OSError as error:
        raise _malformed(path, f"cannot be read ({error.strerror})") from None


def _parse(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig").strip())
    except UnicodeDecodeError as error:
        raise _Unexpected(f"expected UTF-8, got byte {line[error.start]:#04x}") from None
    except json.JSONDecodeError as error:
        raise _Unexpected(f"expected JSON, but {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise _Unexpected(f"expected usable JSON, but {error}") from None


def _conversation(value: Any, default_name: str) -> Conversation:
    if not isinstance(value, dict):
        raise _Unexpected(f"expected a JSON object, got {_kind(value)}")
    key = "messages" if "messages" in value else "conversations"
    messages = value.get(key)
    if not isinstance(messages, list):
        found = f"got {_kind(messages)}" if key in value else "got neither"
        raise _Unexpected(f'expected "messages" or "conversations" with a list, {found}')
    name = value.get("id")
    return Conversation(
        name=_as_text(name) if isinstance(name, str | int) and name != "" else default_name,
        tools=_lines(value.get("tools"), value.get("functions")),
        messages=tuple(_message(m, f"{key}[{i}]") for i, m in enumerate(messages)),
    )


def _message(value: Any, where: str) -> Message:
    if not isinstance(value, dict):
        raise _Unexpected(f"{where}: expected an object, got {_kind(value)}")
    said_by = value.get("role", value.get("from"))
    role = _ROLES.get(said_by.lower()) if isinstance(said_by, str) else None
    if role is None:
        expected = ", ".join(_ROLES)
        raise _Unexpected(f"{where}: role is {reprlib.repr(said_by)}; expected one of {expected}")
    content = value.get("content", value.get("value"))
    if isinstance(content, list):
        text = "".join(_part_text(part) for part in content)
    elif isinstance(content, str | None):
        text = _as_text(content or "")
    else:
        kind = _kind(content)
        raise _Unexpected(f"{where}: expected content of text, parts or null, got {kind}")
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


def _kind(value: Any) -> str:
    names = {type(None): "null", dict: "an object", list: "a list", str: "text", bool: "a boolean"}
    return names.get(type(value), "a number")
