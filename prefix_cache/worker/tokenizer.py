"""What the worker asks of a tokenizer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from prefix_cache.errors import InvalidArgument


class Tokenizer(ABC):
    """Text to token ids and back.  Every token stands for some bytes of UTF-8.

    ``eos_ids`` are the tokens that end an answer.  Ids from ``vocab_size`` on stand for nothing:
    models may have more rows than their tokenizer has tokens.
    """

    vocab_size: int
    eos_ids: frozenset[int]

    def encode(self, text: str, *, bos: bool) -> list[int]:
        """Return the tokens of ``text``; where it names special tokens, these are meant.

        With ``bos`` those are added that the model wants around a bare prompt.  Raises
        InvalidArgument for text that is not Unicode (a lone surrogate).
        """
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"character {error.start} of the text is {text[error.start]!r}, "
                "half of a surrogate pair; expected text that has an encoding in UTF-8",
                position=error.start,
            ) from None
        return self._encode(text, bos)

    @abstractmethod
    def _encode(self, text: str, bos: bool) -> list[int]:
        """Encode text that is Unicode."""

    @abstractmethod
    def piece(self, token_id: int, after: int | None) -> bytes:
        """Return the bytes that a token stands for where it comes ``after`` another.

        None: what it comes after is not known, and is not the beginning of a text.  Special
        tokens stand for nothing.
        """

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of tokens that go on a text; bytes that are no UTF-8 show as U+FFFD."""
        before = (None, *token_ids[:-1])
        pieces = map(self.piece, token_ids, before)
        return b"".join(pieces).decode("utf-8", "replace")
