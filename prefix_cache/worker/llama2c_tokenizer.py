"""The tokenizer of llama2.c: neighbours are merged by the score of what they make."""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from prefix_cache.worker.tokenizer import Tokenizer

BOS = 1
EOS = 2
_FIRST_BYTE = 3  # the token of byte 0; those of the others follow
LEAST_TOKENS = _FIRST_BYTE + 256
_BYTE = re.compile(rb"<0x([0-9A-F]{2})>")

_Merge = tuple[float, int, int, int]
"""Minus the score, the places of both neighbours, and the token that they make."""


class Llama2cTokenizer(Tokenizer):
    """Pieces in UTF-8, with a score for each; characters that are none fall back to bytes.

    Stories were trained with BOS between them, so BOS ends an answer as EOS does.
    """

    eos_ids = frozenset({BOS, EOS})

    def __init__(self, pieces: Sequence[bytes], scores: Sequence[float]) -> None:
        self.vocab_size = len(pieces)
        self._raw = pieces
        self._scores = scores
        self._ids = {piece: token for token, piece in reversed(list(enumerate(pieces)))}
        self._pieces = [_decoded(piece) for piece in pieces]
        self._pieces[BOS] = self._pieces[EOS] = b""

    def _encode(self, text: str, bos: bool) -> list[int]:
        start = [BOS] if bos else []
        if not text:
            return start
        tokens = []
        for character in " " + text:
            data = character.encode()
            whole = self._ids.get(data)
            tokens += [byte + _FIRST_BYTE for byte in data] if whole is None else [whole]
        return start + self._merged(tokens)

    def piece(self, token_id: int, after: int | None) -> bytes:
        """Return the bytes of a token; encoding put a space before the text, which is dropped."""
        piece = self._pieces[token_id] if token_id < self.vocab_size else b""
        return piece.removeprefix(b" ") if after == BOS else piece

    def _merged(self, tokens: list[int]) -> list[int]:
        """Merge the neighbours with the best score, the first of equals, until none are left."""
        end = len(tokens)
        following = list(range(1, end + 1))
        preceding = list(range(-1, end - 1))
        gone = [False] * end

        def merges(left: int, right: int) -> list[_Merge]:
            if left < 0 or right == end:
                return []
            made = self._ids.get(self._raw[tokens[left]] + self._raw[tokens[right]])
            return [] if made is None else [(-self._scores[made], left, right, made)]

        heap = [merge for left in range(end - 1) for merge in merges(left, left + 1)]
        heapify(heap)
        while heap:
            merge = heappop(heap)
            _, left, right, made = merge
            if gone[left] or gone[right] or merge not in merges(left, right):
                continue  # one of the two has become another token since
            tokens[left] = made
            gone[right] = True
            beyond = following[right]
            following[left] = beyond
            if beyond < end:
                preceding[beyond] = left
            for new in merges(preceding[left], left) + merges(left, beyond):
                heappush(heap, new)
        return [token for token, is_gone in zip(tokens, gone, strict=True) if not is_gone]


def _decoded(piece: bytes) -> bytes:
    byte = _BYTE.fullmatch(piece)
    return bytes.fromhex(byte[1].decode()) if byte else piece
