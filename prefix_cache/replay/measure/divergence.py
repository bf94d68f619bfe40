"""Where a prompt leaves what was seen before, and how much behind that place is nothing new.

A cache keeps prefixes only: one changed token makes everything behind it new to the cache, even
where it is the same text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats import Request
from prefix_cache.replay.measure.seen import Found
from prefix_cache.replay.measure.words import common_bytes
from prefix_cache.replay.volatile import OTHER_TEXT, kind_at

# Two texts agree again where so many words are the same; as many bytes of a chat's marks are not.
_AGREEING = 32
# That is looked for behind so many changed or added words, and so many left out.
_MAX_ADDED = 128
_MAX_LEFT_OUT = 4096

_MAX_NEIGHBOUR = 1 << 18
_CONTEXT = 48  # words on either side, to tell what stands there

_LEFT_OUT = "text left out"
_ADDED = "text added"
_IDS = "token ids"


@dataclass(frozen=True, slots=True)
class Divergence:
    """A prompt leaves another one at token ``position`` of ``message``, and comes back to it.

    ``repeated_tokens`` behind that place are the same in both.  ``message`` is None where the
    place is in the tools, or the file has no messages; ``role`` is empty then.
    """

    conversation: str
    turn: int
    position: int
    message: int | None
    role: str
    kind: str
    repeated_tokens: int


def divergence(
    request: Request, found: Found, text_of: Callable[[bytes], str] | None
) -> Divergence | None:
    """Return where a prompt diverges from the one that shares the most with it.

    None where it does not, or where nothing behind the place is repeated.
    """
    prompt, start = request.prompt, found.num_words * TOKEN_BYTES
    if not start < len(prompt):
        return None
    other = found.went_on(_MAX_NEIGHBOUR)
    first = at = _meeting(prompt, start, other, 0)
    if first is None:
        return None
    repeated = 0
    while at is not None:
        here, there = at
        same = common_bytes(prompt, here, other, there)
        repeated += same
        at = _meeting(prompt, here + same, other, there + same)
    position = found.num_words
    span = request.span_at(position)
    kind = _kind(prompt, start, first[0] == start, first[1] == 0, text_of)
    return Divergence(
        request.conversation,
        request.turn,
        position,
        span.message if span else None,
        span.role if span else "",
        kind,
        repeated // TOKEN_BYTES,
    )


def _meeting(prompt: bytes, start: int, other: bytes, begin: int) -> tuple[int, int] | None:
    """Where two sequences agree again from ``start`` and ``begin`` on, in bytes."""
    size = _AGREEING * TOKEN_BYTES
    until = begin + _MAX_LEFT_OUT * TOKEN_BYTES + size
    last = min(start + _MAX_ADDED * TOKEN_BYTES, len(prompt) - size)
    for here in range(start, last + 1, TOKEN_BYTES):
        wanted = prompt[here : here + size]
        there = other.find(wanted, begin, until)
        while there % TOKEN_BYTES and there >= 0:
            there = other.find(wanted, there + 1, until)
        if there >= 0:
            return here, there
    return None


def _kind(
    prompt: bytes,
    start: int,
    nothing_added: bool,
    nothing_left_out: bool,
    text_of: Callable[[bytes], str] | None,
) -> str:
    """What is different."""
    if text_of is None:
        kind = _IDS
    else:
        before = text_of(prompt[max(0, start - _CONTEXT * TOKEN_BYTES) : start])
        after = text_of(prompt[start : start + _CONTEXT * TOKEN_BYTES])
        kind = kind_at(before + after, len(before))
    if kind in (_IDS, OTHER_TEXT) and (nothing_added or nothing_left_out):
        return _LEFT_OUT if nothing_added else _ADDED
    return kind
