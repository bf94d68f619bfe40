"""What can be played: the mission's chat, the built-in chats, and files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from prefix_cache.errors import MalformedFile
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.conversations import Conversation, read_conversations
from prefix_cache.replay.encoding import UTF8_BYTES, Encoding
from prefix_cache.replay.turns import TokenizedConversation, tokenize


@dataclass(frozen=True)
class Source:
    """Conversations to play, and what their tokens are, for people."""

    name: str
    tokens_are: str
    conversations: tuple[TokenizedConversation, ...]

    @property
    def num_turns(self) -> int:
        """Turns of all conversations together."""
        return sum(len(conversation.pieces) for conversation in self.conversations)


def mission() -> Source:
    """One chat of ten turns: 1,200 tokens, then 200 per question, answers of 500.

    The token ids are made up: they count up from 1,000,000.
    """
    questions, answer = [1200] + [200] * 9, 500
    total = sum(questions) + answer * len(questions)
    ids = np.arange(1_000_000, 1_000_000 + total, dtype="<u4").tobytes()
    pieces, start = [], 0
    for question in questions:
        middle = start + TOKEN_BYTES * question
        end = middle + TOKEN_BYTES * answer
        pieces.append((ids[start:middle], ids[middle:end]))
        start = end
    conversation = TokenizedConversation("mission", tuple(pieces))
    return Source("mission", "made-up ids", (conversation,))


def chats(encoding: Encoding = UTF8_BYTES) -> Source:
    """Eleven chats with assistants for support, cooking, travel and coding.

    Two long system prompts are shared between them.
    """
    with resources.as_file(resources.files(__package__) / "chats.jsonl") as path:
        return _tokenized("chats", read_conversations(path), encoding)


def from_file(path: Path, encoding: Encoding = UTF8_BYTES) -> Source:
    """Conversations of a file of JSON lines; see ``read_conversations``.

    Raises MalformedFile when the file cannot be read or has no turn to play.
    """
    source = _tokenized(path.name, read_conversations(path), encoding)
    if not source.num_turns:
        raise MalformedFile(
            f"{path}: no turn to play; expected a user or assistant message", file=str(path)
        )
    return source


def _tokenized(name: str, conversations: Iterable[Conversation], encoding: Encoding) -> Source:
    return Source(name, encoding.tokens_are, tuple(tokenize(c, encoding) for c in conversations))
