"""Requests of traces that say nothing but when they came and how long they were."""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Any

import numpy as np

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats.fields import MAX_LENGTH, as_object, first_of, time_of, whole
from prefix_cache.replay.formats.records import Records
from prefix_cache.replay.formats.request import Request

PROMPT_LENGTH = (
    "input_length",
    "ContextTokens",
    "input_tokens",
    "prompt_tokens",
    "input_toks",
    "prompt_len",
    "input_len",
)
ANSWER_LENGTH = (
    "output_length",
    "GeneratedTokens",
    "output_tokens",
    "completion_tokens",
    "output_toks",
    "output_len",
)

_MAX_OPEN = 4096
"""Conversations that may still go on; the shortest are given up first."""


def read_lengths(records: Records, assume_turns: int | None) -> Iterator[Request]:
    """Make up conversations that could have had these lengths.

    A request goes on with the open conversation of the longest history, its answers among it,
    that is shorter than its prompt; a conversation is over after ``assume_turns`` turns.  With
    1 no prompt shares anything.  Raises InvalidArgument without ``assume_turns``: the file
    alone does not tell what its prompts share.
    """
    if assume_turns is None:
        raise InvalidArgument(
            f"{records.path} says lengths only, not what prompts share: say how many turns a "
            "conversation is assumed to have (--assume-turns; 1: nothing is shared)",
            file=str(records.path),
        )
    conversations = _Conversations(assume_turns)

    def request(value: Any, number: int) -> Request:
        record = as_object(value)
        return conversations.request(
            whole("prompt length", first_of(record, PROMPT_LENGTH), 1, MAX_LENGTH),
            whole("answer length", first_of(record, ANSWER_LENGTH) or 0, 0, MAX_LENGTH),
            time_of(record),
        )

    return records.read(request)


class _Conversations:
    """Made-up conversations: token 0 is the conversation's number, token n is n."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._numbers = itertools.count()
        self._open: list[tuple[int, int, int]] = []  # history in tokens, number, turns so far
        self._ids = b""

    def request(self, prompt_tokens: int, answer_tokens: int, at: float | None) -> Request:
        place = bisect_left(self._open, (prompt_tokens,))
        _, number, turn = self._open.pop(place - 1) if place else (0, next(self._numbers), 0)
        total = prompt_tokens + answer_tokens
        if turn + 1 < self._turns:
            insort(self._open, (total, number, turn + 1))
            if len(self._open) > _MAX_OPEN:
                del self._open[0]
        words = number.to_bytes(TOKEN_BYTES, "little") + self._counting(total)
        end = TOKEN_BYTES * prompt_tokens
        return Request.of_tokens(str(number), turn + 1, words[:end], words[end:], at)

    def _counting(self, end: int) -> bytes:
        """Token ids from 1 up to ``end``, exclusive."""
        if len(self._ids) < TOKEN_BYTES * (end - 1):
            self._ids = np.arange(1, 2 * end, dtype="<u4").tobytes()
        return self._ids[: TOKEN_BYTES * (end - 1)]
