"""Text of tokens as they come, never half a character."""

from __future__ import annotations

import codecs

from prefix_cache.worker.tokenizer import Tokenizer


class StreamDecoder:
    """Decodes tokens one by one; what it returns, joined, is what ``decode`` of them all returns.

    ``after`` is the token that the first one comes after.
    """

    def __init__(self, tokenizer: Tokenizer, after: int | None = None) -> None:
        self._tokenizer = tokenizer
        self._after = after
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int) -> str:
        """Return the characters that this token completes; often one or more, maybe none."""
        piece = self._tokenizer.piece(token_id, self._after)
        self._after = token_id
        return self._utf8.decode(piece)

    def finish(self) -> str:
        """Return what is left: U+FFFD for a character that was never completed."""
        return self._utf8.decode(b"", final=True)
