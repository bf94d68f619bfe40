"""Requests of whole conversations: one for each turn, a strict extension of the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.conversations import Conversation, conversation_of
from prefix_cache.replay.formats.options import ReadOptions
from prefix_cache.replay.formats.records import Records
from prefix_cache.replay.formats.request import Request, Span
from prefix_cache.replay.rotation import in_rotation
from prefix_cache.replay.turns import Part, parts
from prefix_cache.replay.volatile import normalised


def read_chats(records: Records, options: ReadOptions) -> Iterator[Request]:
    """Read OpenAI or ShareGPT conversations, one a record; play some at once, in rotation."""

    def turns(value: Any, number: int) -> Iterator[Request]:
        conversation = replace(conversation_of(value, ""), name=f"line {number}")
        return chat_turns(conversation, options)

    return in_rotation(records.read(turns), options.window)


def chat_turns(conversation: Conversation, options: ReadOptions) -> Iterator[Request]:
    """Return the turns of one conversation.

    Raises InvalidArgument for text that the encoding has no tokens for.
    """
    if options.normalise:
        conversation = _normalised(conversation)
    try:
        yield from _turns(conversation, options)
    except InvalidArgument as error:
        name = conversation.name
        raise InvalidArgument(f"conversation {name!r}: {error}", conversation=name) from error


def role_of(part: Part, conversation: Conversation) -> str:
    """Whose text a part is."""
    return "tools" if part.message is None else conversation.messages[part.message].role


def _turns(conversation: Conversation, options: ReadOptions) -> Iterator[Request]:
    encode = options.encoding.encode
    history, text = bytearray(), ""
    spans: list[Span] = []
    for number, (added, answer) in enumerate(parts(conversation), start=1):
        known = len(history)
        for part in added:
            history += encode(part.text)
            spans.append(
                Span(len(history) // TOKEN_BYTES, part.message, role_of(part, conversation))
            )
        answer_ids = encode(answer.text)
        request = Request.of_tokens(conversation.name, number, bytes(history), answer_ids)
        if options.reencode:
            text += "".join(part.text for part in added)
            new_tokens = (len(history) - known) // TOKEN_BYTES
            prompt = encode(text)
            prompt_tokens = len(prompt) // TOKEN_BYTES
            request = replace(
                request,
                prompt=prompt,
                prompt_tokens=prompt_tokens,
                reencoded_tokens=max(0, prompt_tokens - new_tokens) if known else 0,
            )
            text += answer.text
        yield replace(request, spans=spans)
        history += answer_ids
        spans.append(
            Span(len(history) // TOKEN_BYTES, answer.message, role_of(answer, conversation))
        )


def _normalised(conversation: Conversation) -> Conversation:
    return replace(
        conversation,
        tools=normalised(conversation.tools),
        messages=tuple(
            replace(message, text=normalised(message.text)) if message.role == "system" else message
            for message in conversation.messages
        ),
    )
