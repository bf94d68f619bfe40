"""Conversations as turns: what each prompt and each answer is, in text and in tokens.

The text of a conversation only ever grows: a prompt begins with the whole prompt and answer
before it.  Every message is ``<|role|>``, a line break, its text, ``<|end|>``, a line break; a
prompt ends with the header of the answer, and an answer with its end::

    <|tools|>
    [{"name": "book_table"}]<|end|>
    <|user|>
    A table for two, please.<|end|>
    <|assistant|>

A turn ends at each assistant message.  A user message that nobody answered, because another
user message follows or the conversation ends, is a turn with an empty answer; its end mark
opens the next prompt.  Tools stand first; system and tool messages belong to the next prompt.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from prefix_cache.errors import InvalidArgument
from prefix_cache.replay.conversations import Conversation
from prefix_cache.replay.encoding import Encoding

_END = "<|end|>\n"


def _header(role: str) -> str:
    return f"<|{role}|>\n"


class Part(NamedTuple):
    """Rendered text, and the index of the message it belongs to; None for the tools."""

    text: str
    message: int | None


def parts(conversation: Conversation) -> Iterator[tuple[list[Part], Part]]:
    """Per turn, what its prompt adds to the history, and its answer.

    The marks of an empty answer belong to the message before them.
    """
    added = []
    if conversation.tools:
        added.append(Part(_header("tools") + conversation.tools + _END, None))
    user_waits = False
    for index, message in enumerate(conversation.messages):
        if message.role == "assistant":
            yield [*added, Part(_header("assistant"), index)], Part(message.text + _END, index)
            added, user_waits = [], False
            continue
        if message.role == "user" and user_waits:
            yield [*added, Part(_header("assistant"), index - 1)], Part("", index - 1)
            added = [Part(_END, index - 1)]
        added.append(Part(_header(message.role) + message.text + _END, index))
        user_waits = user_waits or message.role == "user"
    if user_waits:
        last = len(conversation.messages) - 1
        yield [*added, Part(_header("assistant"), last)], Part("", last)


def render(conversation: Conversation) -> Iterator[tuple[str, str]]:
    """Per turn, the text that its prompt adds to the history, and its answer."""
    for added, answer in parts(conversation):
        yield "".join(part.text for part in added), answer.text


@dataclass(frozen=True)
class Turn:
    """One turn to play.  Prompt and answer are token ids, uint32 little-endian."""

    conversation: str
    number: int  # from 1
    prompt: bytes
    answer: bytes


@dataclass(frozen=True)
class TokenizedConversation:
    """A conversation in tokens; ``pieces`` are what each turn adds: to the prompt, by answer."""

    name: str
    pieces: tuple[tuple[bytes, bytes], ...]

    def turns(self) -> Iterator[Turn]:
        """The turns with their whole prompts, each built when it is asked for."""
        history = bytearray()
        for number, (added, answer) in enumerate(self.pieces, start=1):
            history += added
            yield Turn(self.name, number, bytes(history), answer)
            history += answer


def tokenize(conversation: Conversation, encoding: Encoding) -> TokenizedConversation:
    """Encode what each turn adds, piece by piece.

    An engine keeps the ids that it generated; encoding the whole text anew could join
    characters across the seams into other ids, and reuse would end there.  Raises
    InvalidArgument for text that the encoding has no tokens for.
    """
    encode, name = encoding.encode, conversation.name
    try:
        pieces = tuple((encode(added), encode(answer)) for added, answer in render(conversation))
    except InvalidArgument as error:
        raise InvalidArgument(f"conversation {name!r}: {error}", conversation=name) from error
    return TokenizedConversation(name, pieces)
