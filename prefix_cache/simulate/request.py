"""One request of a simulated load."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from prefix_cache.index.tokens import TOKEN_BYTES


class Branch(NamedTuple):
    """Before token ``step`` (from 0) of the answers is fed, ``loser`` becomes a copy of ``parent``.

    Both are numbers of sequences; branches of one step happen at the same time.
    """

    step: int
    loser: int
    parent: int


@dataclass(frozen=True)
class Request:
    """A prompt and what it is answered; both are token ids, uint32 little-endian.

    ``width`` sequences are generated at the same time, of one length.  Beams ``branches`` among
    them, in order of steps; samples do not.
    """

    arrival_s: float
    prompt: bytes
    answer: bytes
    width: int = 1
    branches: tuple[Branch, ...] = ()

    @cached_property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return len(self.prompt) // TOKEN_BYTES

    @cached_property
    def answer_tokens(self) -> int:
        """Tokens of each sequence's answer, at least 1."""
        return len(self.answer) // TOKEN_BYTES

    @cached_property
    def final_tokens(self) -> int:
        """Tokens of each sequence that have KV at the end: the last one is never fed."""
        return self.prompt_tokens + self.answer_tokens - 1
