"""Text to token ids, as the bytes the index takes: uint32 little-endian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prefix_cache.errors import InvalidArgument, MalformedFile, MissingExtra
from prefix_cache.plain_template import utf8_tokens


@dataclass(frozen=True)
class Encoding:
    """``encode`` makes token ids of text; ``tokens_are`` says what they are, for people.

    Raises InvalidArgument for text that has none.  ``decode`` makes text of any token ids; those
    that stand for no text show as such.  ``begins_character`` tells whether a token is not the
    rest of a character that another began, where characters can be of several tokens.
    """

    tokens_are: str
    encode: Callable[[str], bytes]
    decode: Callable[[bytes], str]
    begins_character: Callable[[int], bool] = lambda token: True


def _decode_utf8(tokens: bytes) -> str:
    # 255 is in no UTF-8 text, so it shows as a replacement character.
    data = np.minimum(np.frombuffer(tokens, "<u4"), 255).astype(np.uint8)
    return str(data.tobytes(), "utf-8", "replace")


def _begins_character_utf8(token: int) -> bool:
    return token & 0b1100_0000 != 0b1000_0000


UTF8_BYTES = Encoding("UTF-8 bytes", utf8_tokens, _decode_utf8, _begins_character_utf8)


def load_encoding(tokenizer: Path | None) -> Encoding:
    """Encode with a Hugging Face ``tokenizer.json``; without one, UTF-8 bytes are the tokens.

    No special tokens are added.  Raises MissingExtra without the extra ``tokenizers``,
    MalformedFile when the file is no tokenizer.
    """
    if tokenizer is None:
        return UTF8_BYTES
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingExtra(
            "a tokenizer needs the extra `tokenizers`: pip install 'prefix-cache[tokenizers]'",
            extra="tokenizers",
        ) from None
    try:
        loaded = Tokenizer.from_file(str(tokenizer))
    except Exception as error:  # the library raises nothing narrower
        raise MalformedFile(f"{tokenizer}: no tokenizer ({error})", file=str(tokenizer)) from None

    def encode(text: str) -> bytes:
        try:
            ids = loaded.encode(text, add_special_tokens=False).ids
        except Exception as error:  # again nothing narrower
            raise InvalidArgument(
                f"{tokenizer.name} cannot encode the text ({error})", tokenizer=str(tokenizer)
            ) from None
        return np.array(ids, dtype="<u4").tobytes()

    def decode(tokens: bytes) -> str:
        ids = np.frombuffer(tokens, "<u4").tolist()
        text: str = loaded.decode(ids, skip_special_tokens=False)
        return text

    return Encoding(f"ids of {tokenizer.name}", encode, decode)
