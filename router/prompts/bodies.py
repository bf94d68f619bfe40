"""The bodies of OpenAI requests, read as far as routing needs: everything else is only skipped.

Each kind says what ``text`` stands for its prompt, and what ``head`` of it stays the same over
the turns of a conversation.  Texts are made of the client's own JSON, so that no string is built;
an image in a ``data:`` URL is text like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from typing import Any, cast

import msgspec
from msgspec import Raw

from prefix_cache.index.tokens import as_token_bytes
from prefix_cache.plain_template import response_messages


@dataclass(frozen=True, slots=True)
class Place:
    """A part of a prompt: a message, or the tools before them all."""

    message: int | None
    """Its index; the instructions of a response are its first message.  None: of the tools."""
    role: str


class Body(msgspec.Struct, gc=False):
    """What any body may have.  Fields that only the engine checks may be anything.

    As such it is the body of a request that is routed by load: /v1/embeddings.
    """

    model: object = None
    conversation: object = None
    prompt_cache_key: object = None
    user: object = None
    cache_salt: object = None
    chat_template: Raw = Raw()
    reasoning_effort: Raw = Raw()
    documents: Raw = Raw()
    add_generation_prompt: Raw = Raw()
    continue_final_message: Raw = Raw()
    truncate_prompt_tokens: Raw = Raw()
    tool_choice: Raw = Raw()
    chat_template_kwargs: Raw = Raw()
    mm_processor_kwargs: Raw = Raw()
    response_format: Raw = Raw()

    def options(self) -> tuple[bytes, ...]:
        """What the engine's prompt depends on besides its text; empty where all is as usual."""
        given = _options(self)
        if given == _NO_OPTIONS:
            return ()
        stated = tuple(
            b"" if json in (b"null", usual) else json
            for json, usual in zip(map(bytes, given), _USUAL.values(), strict=True)
        )
        return stated if any(stated) else ()

    def unrendered(self) -> str:
        """An option that only the engine knows how to render; empty: there is none."""
        stated = zip(_USUAL, self.options()[:_UNRENDERED], strict=False)
        return next((name for name, json in stated if json), "")

    def previous(self) -> str:
        """The id of the response that this goes on from; empty: of none."""
        return ""

    def tokens(self) -> bytes:
        """The prompt as uint32 little-endian, where the client sent token ids; else empty."""
        return b""

    def bare(self) -> str:
        """The prompt as the client wrote it, where that is one text; else empty."""
        return ""

    def chat(self) -> tuple[list[Any], list[Any]] | None:
        """The messages and tools of which the engine renders a prompt, where that is what it does.

        Raises msgspec.DecodeError for those that are no JSON.
        """
        return None

    def text(self) -> Sequence[bytes]:
        """Pieces of a text that goes on where that of the turn before ended; none: unhashable."""
        return ()

    def place(self, byte: int) -> Place | None:
        """The part that a byte of the text is in; None where there are no parts."""
        for place, length in self._parts():
            if byte < length:
                return place
            byte -= length
        return None

    def _parts(self) -> Iterator[tuple[Place, int]]:
        """The parts of the text, with their lengths."""
        return iter(())

    def head(self) -> Sequence[bytes]:
        """What every turn of the conversation begins with; empty: nothing to tell it by."""
        return ()


# What options say of themselves when they say nothing; the first ones only engines can render.
_USUAL = {
    "chat_template": b"",
    "reasoning_effort": b"",
    "documents": b"[]",
    "add_generation_prompt": b"true",
    "continue_final_message": b"false",
    "truncate_prompt_tokens": b"",
    "tool_choice": b'"auto"',
    "chat_template_kwargs": b"{}",
    "mm_processor_kwargs": b"{}",
    "response_format": b"",
}
_UNRENDERED = 7
_options = attrgetter(*_USUAL)
_NO_OPTIONS = _options(Body())


class ChatBody(Body, gc=False):
    """/v1/chat/completions."""

    messages: list[Raw] | None = None
    tools: Raw = Raw()

    def chat(self) -> tuple[list[Any], list[Any]] | None:
        """Both as they are."""
        return (_decoded(self.messages), _tools(self.tools)) if self.messages else None

    def text(self) -> Sequence[bytes]:
        """The tools and the messages, without the bracket that closes these."""
        if not self.messages:
            return ()
        return (_given(self.tools), b"[", *_separated(self.messages))

    def head(self) -> Sequence[bytes]:
        """The tools, and the messages up to the first of the user."""
        return _up_to_user([_given(self.tools)], self.messages or ())

    def _parts(self) -> Iterator[tuple[Place, int]]:
        yield _TOOLS, len(_given(self.tools))
        yield from _message_parts(self.messages or ())


class ResponsesBody(Body, gc=False):
    """/v1/responses.  What ``previous_response_id`` names is at the engine, and so unhashable."""

    previous_response_id: object = None
    input: list[Raw] | str | None = None
    instructions: Raw = Raw()
    tools: Raw = Raw()

    def previous(self) -> str:
        """The id that the client sent."""
        return self.previous_response_id if isinstance(self.previous_response_id, str) else ""

    def chat(self) -> tuple[list[Any], list[Any]] | None:
        """The instructions are the message of the system."""
        if not self.input or self.previous():
            return None
        given = self.input if isinstance(self.input, str) else _decoded(self.input)
        instructions = _given(self.instructions)
        system = _text.decode(instructions) if instructions else None
        return response_messages(system, given), _tools(self.tools)

    def text(self) -> Sequence[bytes]:
        """The tools, the instructions and the input, without what closes that."""
        if not self.input or self.previous():
            return ()
        return (*self._opening(), b"[", *_separated(self._items()))

    def head(self) -> Sequence[bytes]:
        """The tools, the instructions, and the input up to the first message of the user."""
        return _up_to_user(self._opening(), self._items())

    def _parts(self) -> Iterator[tuple[Place, int]]:
        tools, instructions = map(len, self._opening())
        yield _TOOLS, tools
        if instructions:
            yield Place(0, "system"), instructions
        yield from _message_parts(self._items(), first=1 if instructions else 0)

    def _opening(self) -> list[bytes]:
        return [_given(self.tools), _given(self.instructions)]

    def _items(self) -> Sequence[bytes]:
        """The items of the input; a string is short for one message of the user."""
        if isinstance(self.input, str):
            return [msgspec.json.encode({"role": "user", "content": self.input})]
        return self.input or ()


class CompletionBody(Body, gc=False):
    """/v1/completions.  One prompt is no conversation: it has no head.

    A list of one prompt is that prompt.  Of a list of several the text is that of the whole list.
    """

    prompt: Raw = Raw()

    def tokens(self) -> bytes:
        """The token ids of the one prompt."""
        prompt = bytes(self.prompt)
        if prompt[:1] != b"[":
            return b""
        prompts: Sequence[object] = _prompts.decode(prompt)
        if len(prompts) == 1 and isinstance(prompts[0], list):
            prompts = prompts[0]
        if not prompts or not isinstance(prompts[0], int):
            return b""
        return as_token_bytes(cast(Sequence[int], prompts))  # which checks that they are

    def bare(self) -> str:
        """The one text."""
        prompt = self._only()
        return _text.decode(prompt) if prompt[:1] == b'"' else ""

    def text(self) -> Sequence[bytes]:
        """The prompt without its closing quote, or the list of prompts without its bracket."""
        prompt = self._only()
        return (prompt[:-1],) if len(prompt) > 2 and prompt[:1] in (b'"', b"[") else ()

    def _only(self) -> bytes:
        """The JSON of the prompt, taken out of a list of one."""
        prompt = bytes(self.prompt)
        if prompt[:1] == b"[":
            prompts = _raw_items.decode(prompt)
            if len(prompts) == 1:
                return bytes(prompts[0])
        return prompt


class _Message(msgspec.Struct, gc=False):
    role: object = None


_TOOLS = Place(None, "tools")
_LOOKED_AT = 64
_BEGINS_WITH_ROLE = re.compile(rb'\{\s*"role"\s*:\s*"([a-z]+)"')

_prompts = msgspec.json.Decoder(list[int | str | list[int]])
_raw_items = msgspec.json.Decoder(list[Raw])
_message = msgspec.json.Decoder(_Message)
_text = msgspec.json.Decoder(str)


def _decoded(items: Iterable[bytes]) -> list[Any]:
    return [msgspec.json.decode(item) for item in items]


def _tools(value: Raw) -> list[Any]:
    tools = _given(value)
    return msgspec.json.decode(tools, type=list[Any]) if tools else []


def _separated(items: Sequence[bytes]) -> list[bytes]:
    """The items, of which there are some, with a comma between any two."""
    separated: list[bytes] = [b","] * (2 * len(items) - 1)
    separated[::2] = items
    return separated


def _given(value: Raw) -> bytes:
    """The JSON of a value, empty for those that say the same as none at all."""
    json = bytes(value)
    return b"" if json in (b"null", b"[]", b'""') else json


def _up_to_user(opening: list[bytes], messages: Iterable[bytes]) -> Sequence[bytes]:
    """``opening`` and the messages that end with the first of the user; empty if none is.

    That is looked for among the first ones only: to look on takes long, and no chat begins so.
    """
    head = opening
    for message in islice(messages, _LOOKED_AT):
        head.append(message)
        if _role(message) == b"user":
            return head
    return ()


def _message_parts(messages: Iterable[bytes], first: int = 0) -> Iterator[tuple[Place, int]]:
    """Each with the bracket or comma before it."""
    for index, message in enumerate(messages, first):
        yield Place(index, _role(message).decode()), 1 + len(message)


def _role(message: bytes) -> bytes:
    """The role of a message: nearly all begin with it, and need not be read to their end."""
    if begins := _BEGINS_WITH_ROLE.match(message):
        return begins[1]
    role = _message.decode(message).role
    return role.encode() if isinstance(role, str) else b""
