"""How many tokens a text has, without its tokenizer."""

from __future__ import annotations

from dataclasses import dataclass

_FIRST_GUESS = 0.25  # tokens per byte
_REMEMBERED_TOKENS = 1_000_000.0


@dataclass(slots=True)
class TokenEstimate:
    """Tokens per byte, corrected by what engines said of texts they served."""

    _bytes: float = 4096.0
    _tokens: float = 4096.0 * _FIRST_GUESS

    def tokens(self, num_bytes: int) -> int:
        """Return about how many tokens ``num_bytes`` of text are, at least 1."""
        return max(1, round(num_bytes * self._tokens / self._bytes))

    def learn(self, num_bytes: int, num_tokens: int) -> None:
        """Take an engine's word that ``num_bytes`` of text were ``num_tokens`` tokens.

        One that would outweigh all others teaches nothing.
        """
        if num_tokens > _REMEMBERED_TOKENS:
            return
        if self._tokens > _REMEMBERED_TOKENS:  # old ones fade, so that a new mix is followed
            self._bytes /= 2
            self._tokens /= 2
        self._bytes += num_bytes
        self._tokens += num_tokens
