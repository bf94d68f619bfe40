"""Text to token ids, as the bytes the index takes: uint32 little-endian."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prefix_cache.errors import MalformedFile, MissingExtra


@dataclass(frozen=True)
class Encoding:
    """``encode`` makes token ids of text; ``tokens_are`` says what they are, for people."""

    tokens_are: str
    encode: Callable[[str], bytes]


UTF8_BYTES = Encoding(
    "UTF-8 bytes", lambda text: np.frombuffer(text.encode(), np.uint8).astype("<u4").tobytes()
)


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
        ids = loaded.encode(text, add_special_tokens=False).ids
        return np.array(ids, dtype="<u4").tobytes()

    return Encoding(f"ids of {tokenizer.name}", encode)
