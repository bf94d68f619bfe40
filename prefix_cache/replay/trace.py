"""Requests of a trace: when they came, how long they were, and which blocks their prompts had."""

from __future__ import annotations

import math
import reprlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefix_cache.replay.json_lines import Unexpected, kind, malformed, numbered_lines, parse

BLOCK_TOKENS = 512
"""Tokens of a block of a trace."""

_HEAD_BLOCKS = 2
_LARGEST_ID = 2**64 - 1


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


def read_trace(path: Path) -> list[TraceRequest]:
    """Read a Mooncake trace (``.jsonl`` or ``.jsonl.gz``), in order of time.

    Each line is an object with ``timestamp`` in milliseconds, ``input_length`` and
    ``output_length`` in tokens, and ``hash_ids`` of the prompt's blocks of 512 tokens.  Traces
    name no conversations: as a router without a session id does, a request's conversation is
    told from its head, here its first two blocks.  The first alone is a system prompt that
    many share.

    Raises MalformedFile when the file cannot be read, a line is no request, or there is none;
    it names the file, the line (from 1) and what was expected.
    """
    requests = []
    for number, line in numbered_lines(path):
        try:
            requests.append(_request(parse(line)))
        except Unexpected as error:
            raise malformed(path, str(error), number) from None
    if not requests:
        raise malformed(path, "no request in it; expected one a line, as JSON")
    return sorted(requests, key=lambda request: request.at)


def _request(value: Any) -> TraceRequest:
    if not isinstance(value, dict):
        raise Unexpected(f"expected a JSON object, got {kind(value)}")
    hash_ids = value.get("hash_ids")
    if not isinstance(hash_ids, list):
        raise Unexpected(f"hash_ids: expected a list, got {kind(hash_ids)}")
    for hash_id in hash_ids:
        _check_whole("hash_ids", hash_id, 0, _LARGEST_ID)
    return TraceRequest(
        at=_milliseconds(value.get("timestamp")) / 1000,
        input_tokens=_check_whole("input_length", value.get("input_length"), 1, 2**31),
        output_tokens=_check_whole("output_length", value.get("output_length"), 0, 2**31),
        block_hashes=tuple(hash_id.to_bytes(8, "little") for hash_id in hash_ids),
        conversation="-".join(map(str, hash_ids[:_HEAD_BLOCKS])),
    )


def _milliseconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise Unexpected(f"timestamp: expected milliseconds from 0, got {reprlib.repr(value)}")
    return value


def _check_whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        expected = f"a whole number from {least} to {most}"
        raise Unexpected(f"{name}: expected {expected}, got {reprlib.repr(value)}")
    return value
