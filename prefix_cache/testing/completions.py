"""The answers of ``/v1/completions``."""

from __future__ import annotations

from typing import Any

from prefix_cache.index.tokens import as_token_bytes
from prefix_cache.openai_api.answers import DONE, Envelope, text_choice
from prefix_cache.plain_template import utf8_tokens
from prefix_cache.testing.answers import words
from prefix_cache.testing.bodies import DEFAULT_LENGTH, CompletionBody
from prefix_cache.testing.forms import usage
from prefix_cache.testing.worker import Decoding


class Completion:
    """An answer of words to a prompt of text or of token ids."""

    def __init__(self, body: CompletionBody, request_id: str) -> None:
        given = body.prompt
        self.prompt = utf8_tokens(given) if isinstance(given, str) else as_token_bytes(given)
        self._text = words(self.prompt, body.max_tokens or DEFAULT_LENGTH)
        self.answer = utf8_tokens(self._text)
        self.stream = bool(body.stream)
        self._finish = "length" if body.max_tokens else "stop"
        self._with_usage = body.wants_usage
        self._envelope = Envelope("text_completion", request_id, body.model)

    def whole(self, decoding: Decoding) -> dict[str, Any]:
        """Return the whole answer."""
        choice = text_choice(0, self._text, self._finish)
        return self._envelope.whole([choice], usage(decoding))

    def opening(self) -> list[bytes]:
        """Return nothing: a stream begins with the first token."""
        return []

    def piece(self, number: int) -> list[bytes]:
        """Return one character."""
        return [self._envelope.chunk(text_choice(0, self._text[number]))]

    def closing(self, decoding: Decoding) -> list[bytes]:
        """Return why it ended, and the usage if that was asked for."""
        events = [self._envelope.chunk(text_choice(0, "", self._finish))]
        if self._with_usage:
            events.append(self._envelope.usage_chunk(usage(decoding)))
        return [*events, DONE]
