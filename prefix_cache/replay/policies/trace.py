"""Requests as a simulated fleet sees them: when they came, how long they were, their blocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import xxhash

from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats import TOKENS, Grain, Request

BLOCK_TOKENS = 512
"""Tokens of a block, unless something else is said."""


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request.

    ``at`` is in seconds from the begin of the trace.  ``block_hashes`` are one per block of the
    prompt, the last and partial one too; blocks with the same hash have the same history.
    """

    at: float
    input_tokens: int
    output_tokens: int
    block_hashes: tuple[bytes, ...]
    conversation: str
    """Which conversation it belongs to, as far as can be told; empty: none."""
    block_size: int = BLOCK_TOKENS
    """Tokens of a block."""


def trace_of(requests: Iterable[Request], grain: Grain, block_size: int) -> list[TraceRequest]:
    """Return requests with their prompts in blocks of ``block_size`` tokens.

    Those of a file without times come one a second.
    """
    block_words = grain.words_in(block_size)
    return [
        TraceRequest(
            at=float(place) if request.at is None else request.at,
            input_tokens=request.prompt_tokens,
            output_tokens=request.answer_tokens,
            block_hashes=_block_hashes(request.prompt, grain, block_words),
            conversation=request.conversation,
            block_size=block_size,
        )
        for place, request in enumerate(requests)
    ]


def _block_hashes(prompt: bytes, grain: Grain, block_words: int) -> tuple[bytes, ...]:
    size = block_words * TOKEN_BYTES
    blocks = (prompt[at : at + size] for at in range(0, len(prompt), size))
    if grain != TOKENS:  # the last hash in a block stands for all before it, too
        return tuple(block[-grain.words * TOKEN_BYTES :] for block in blocks)
    hashes, parent = [], b""
    for block in blocks:
        parent = xxhash.xxh3_128_digest(parent + block)
        hashes.append(parent)
    return tuple(hashes)
