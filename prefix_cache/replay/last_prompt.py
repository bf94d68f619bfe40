"""The prompt of a conversation's last turn, and which message each token of it is in."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.conversations import Conversation
from prefix_cache.replay.encoding import Encoding
from prefix_cache.replay.turns import parts, tokenize


@dataclass(frozen=True)
class LastPrompt:
    """``tokens`` of the prompt, uint32 little-endian, and what they were made of."""

    conversation: Conversation
    encoding: Encoding
    tokens: bytes

    def message_of(self, position: int) -> int | None:
        """Index of the message that the token at ``position`` is in; None for the tools.

        Told by the length of the text before it.
        """
        offset = len(self.encoding.decode(self.tokens[: position * TOKEN_BYTES]))
        message = None
        for added, answer in parts(self.conversation):
            for text, message in (*added, answer):
                if offset < len(text):
                    return message
                offset -= len(text)
        return message


def last_prompt(conversation: Conversation, encoding: Encoding) -> LastPrompt | None:
    """Return the prompt of the last turn; None for a conversation without one."""
    *_, last = (None, *tokenize(conversation, encoding).turns())
    return None if last is None else LastPrompt(conversation, encoding, last.prompt)
