"""The tokenizers of Hugging Face's ``tokenizers``: byte-level, or with spaces as U+2581."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from tokenizers import Tokenizer as Library

from prefix_cache.errors import InvalidArgument, UnsupportedModel
from prefix_cache.worker.tokenizer import Tokenizer

_BYTE_LEVEL = {"ByteLevel", "Fuse"}
_SPACES = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class HFTokenizer(Tokenizer):
    """A tokenizer of the library.  Raises UnsupportedModel where its decoder is another kind."""

    def __init__(self, library: Library, eos_ids: Iterable[int]) -> None:
        library.no_truncation()
        library.no_padding()
        self._library = library
        self.eos_ids = frozenset(eos_ids)
        kinds = _decoder_kinds(library)
        if kinds and kinds <= _BYTE_LEVEL:
            piece = _byte_level_piece
        elif kinds and kinds <= _SPACES:
            piece = _spaces_piece
        else:
            raise UnsupportedModel(
                f"the tokenizer decodes by {sorted(kinds)}, expected some of "
                f"{sorted(_BYTE_LEVEL)} or of {sorted(_SPACES)}",
                decoder=sorted(kinds),
            )
        self._drops_first_space = bool(kinds & {"Strip", "Metaspace"})
        added = library.get_added_tokens_decoder()
        vocabulary = library.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocabulary.values(), default=-1) + 1
        self._pieces = {token_id: piece(token) for token, token_id in vocabulary.items()}
        for token_id, token in added.items():
            self._pieces[token_id] = b"" if token.special else token.content.encode()
        self._special = {token_id for token_id, token in added.items() if token.special}

    def _encode(self, text: str, bos: bool) -> list[int]:
        try:
            ids: list[int] = self._library.encode(text, add_special_tokens=bos).ids
        except Exception as error:  # the library raises nothing narrower
            raise InvalidArgument(f"the tokenizer cannot encode the text: {error}") from error
        return ids

    def piece(self, token_id: int, after: int | None) -> bytes:
        """Return the bytes of a token; the space that begins a text is none of its own."""
        piece = self._pieces.get(token_id, b"")
        if self._drops_first_space and after in self._special:
            return piece.removeprefix(b" ")
        return piece


def _decoder_kinds(library: Library) -> set[str]:
    """The names of all steps of the decoder."""
    if library.decoder is None:
        return set()
    return set(_kinds(json.loads(library.decoder.__getstate__())))  # as JSON, to be pickled


def _kinds(decoder: dict[str, Any]) -> Iterator[str]:
    if decoder["type"] == "Sequence":
        for step in decoder["decoders"]:
            yield from _kinds(step)
    else:
        yield decoder["type"]


def _byte_alphabet() -> dict[str, int]:
    """The byte that each character stands for: itself if it prints, else one from U+0100 on."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {
        chr(0x100 + place): byte for place, byte in enumerate(others)
    }


_BYTES = _byte_alphabet()


def _byte_level_piece(token: str) -> bytes:
    if all(character in _BYTES for character in token):
        return bytes(_BYTES[character] for character in token)
    return token.encode()


def _spaces_piece(token: str) -> bytes:
    if byte := _BYTE.fullmatch(token):
        return bytes.fromhex(byte[1])
    return token.replace(_SPACE, " ").encode()
