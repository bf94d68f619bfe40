"""Text to the tokens that an engine makes of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from prefix_cache.errors import InvalidArgument, MissingExtra
from prefix_cache.index.tokens import as_token_bytes
from prefix_cache.plain_template import utf8_tokens
from router.prompts.byte_lru import ByteLRU

if TYPE_CHECKING:
    from tokenizers import AddedToken

_REMEMBERED_BYTES = 64 * 1024 * 1024
# To make tokens of as many characters takes some 50 ms, in which nothing else is routed.
_MOST_NEW_CHARACTERS = 131_072


class Tokenizer(Protocol):
    """Makes tokens, uint32 little-endian.  Raises InvalidArgument for text it makes none of."""

    def chat(self, text: str) -> bytes:
        """Tokens of a rendered chat, which has all its special tokens."""

    def prompt(self, text: str) -> bytes:
        """Tokens of a bare prompt, with those that the model wants around it."""


class ByteTokenizer:
    """One token for each byte of UTF-8."""

    def chat(self, text: str) -> bytes:
        """Tokens of a rendered chat."""
        return utf8_tokens(text)

    def prompt(self, text: str) -> bytes:
        """Tokens of a bare prompt."""
        return utf8_tokens(text)


class FileTokenizer:
    """The tokenizer of a ``tokenizer.json``.

    A special token parts the text before anything else is done to it.  So what stands between
    two of them is made to tokens once, and remembered.  Of very much new text at once it only
    remembers the beginning, and makes no tokens.
    """

    def __init__(self, path: str) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise MissingExtra(
                f"the tokenizer {path} needs: pip install 'prefix-cache[tokenizers]'",
                extra="tokenizers",
            ) from error
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(path)
        except Exception as error:  # it raises nothing narrower
            raise InvalidArgument(f"{path} is no tokenizer: {error}", tokenizer=path) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._cut = _before_any(list(self._tokenizer.get_added_tokens_decoder().values()))
        self._remembered: ByteLRU[str, bytes] = ByteLRU(_REMEMBERED_BYTES)

    def chat(self, text: str) -> bytes:
        """Tokens of a rendered chat."""
        made, new_characters = [], 0
        for piece in filter(None, self._cut.split(text) if self._cut else [text]):
            tokens = self._remembered.get(piece)
            if tokens is None:
                new_characters += len(piece)
                _check(new_characters)
                tokens = as_token_bytes(self._tokenizer.encode(piece, add_special_tokens=False).ids)
                self._remembered.put(piece, tokens, len(piece) + len(tokens))
            made.append(tokens)
        return b"".join(made)

    def prompt(self, text: str) -> bytes:
        """Tokens of a bare prompt."""
        _check(len(text))
        return as_token_bytes(self._tokenizer.encode(text).ids) if text else b""


def _check(new_characters: int) -> None:
    if new_characters > _MOST_NEW_CHARACTERS:
        raise InvalidArgument(
            f"it has more than {_MOST_NEW_CHARACTERS} characters of new text",
            characters=new_characters,
        )


def _before_any(added: list[AddedToken]) -> re.Pattern[str] | None:
    """Where a text may be cut without changing its tokens: before a special token.

    Not before one that takes spaces around it or is looked for after normalisation, nor before
    one that may be part of another.
    """
    special = [
        token.content
        for token in added
        if token.special
        and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
        and not any(token.content in other.content for other in added if other is not token)
    ]
    return re.compile(f"(?={'|'.join(map(re.escape, special))})") if special else None
