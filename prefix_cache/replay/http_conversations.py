"""Conversations to play over HTTP, made of the built-in chats: long prompts that grow fast."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

from prefix_cache.replay.conversations import Conversation, read_conversations


@dataclass(frozen=True)
class HttpConversation:
    """What a user says: ``questions``, one a turn, below one system prompt."""

    name: str
    system: str
    questions: tuple[str, ...]


def http_conversations(count: int, turns: int) -> list[HttpConversation]:
    """Return conversations in which each question brings the transcript of a built-in chat.

    Two system prompts are shared between them, and nothing else.
    """
    with resources.as_file(resources.files(__package__) / "chats.jsonl") as path:
        chats = list(read_conversations(path))
    return [_conversation(number, turns, chats) for number in range(count)]


def _conversation(number: int, turns: int, chats: list[Conversation]) -> HttpConversation:
    questions = tuple(
        f"Conversation {number}, question {turn}: what went well here?\n"
        + _transcript(chats[(number + turn) % len(chats)])
        for turn in range(turns)
    )
    system = chats[number % len(chats)].messages[0].text
    return HttpConversation(f"chat {number}", system, questions)


def _transcript(chat: Conversation) -> str:
    return "\n".join(f"{message.role}: {message.text}" for message in chat.messages[1:])
