"""One request to replay, whatever file it came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prefix_cache.index.tokens import TOKEN_BYTES


@dataclass(frozen=True, slots=True)
class Grain:
    """``words`` of a prompt stand for ``tokens`` tokens.

    A word is four bytes, as a token is to the index.  Where a file has token ids or text, a word
    is a token.  Where it has one hash for a block of many tokens, the hash is all that is known
    of them: two words stand for the block, and one for a partial block at the end.
    """

    tokens: int = 1
    words: int = 1

    def tokens_in(self, words: int) -> int:
        """Tokens that the first ``words`` words of a prompt stand for, in whole grains."""
        return words // self.words * self.tokens

    def words_in(self, tokens: int) -> int:
        """Words that stand for ``tokens`` tokens, a multiple of the grain's."""
        return tokens // self.tokens * self.words


TOKENS = Grain()


class Span(NamedTuple):
    """The words up to ``end`` (from where the span before it ends) are those of one message."""

    end: int
    message: int | None
    """Index in the conversation; None for the tools."""
    role: str


@dataclass(frozen=True, slots=True)
class Usage:
    """What an engine reported of one request, in its own tokens."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True, slots=True)
class Request:
    """One turn: ``prompt`` and ``answer`` are words, uint32 little-endian.

    ``at`` is in seconds from an origin of the file's own; None: the file does not say.
    ``reencoded_tokens`` at the head of the prompt are text that the turn before had as ids, and
    that was encoded anew.  ``spans`` tell which message a word is in; they may go on beyond the
    prompt.  ``reported`` is what the engine said that served it.
    """

    conversation: str
    turn: int  # from 1
    prompt: bytes
    answer: bytes
    prompt_tokens: int
    answer_tokens: int
    at: float | None = None
    reencoded_tokens: int = 0
    spans: Sequence[Span] = ()
    reported: Usage | None = None

    @classmethod
    def of_tokens(
        cls, conversation: str, turn: int, prompt: bytes, answer: bytes, at: float | None = None
    ) -> Request:
        """Return a request whose words are its tokens."""
        return cls(
            conversation,
            turn,
            prompt,
            answer,
            len(prompt) // TOKEN_BYTES,
            len(answer) // TOKEN_BYTES,
            at,
        )

    def span_at(self, word: int) -> Span | None:
        """Return the span that the word is in; None where that is not known."""
        return next((span for span in self.spans if word < span.end), None)
