"""Requests of traces that name blocks of prompts by hash.

Equal hashes stand for equal blocks after equal histories.  Answers are in such a trace only where
a later prompt repeats them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np

from prefix_cache.replay.formats.fields import (
    MAX_LENGTH,
    as_object,
    milliseconds,
    time_of,
    whole,
)
from prefix_cache.replay.formats.records import Records
from prefix_cache.replay.formats.request import Grain, Request
from prefix_cache.replay.formats.turn_counter import TurnCounter
from prefix_cache.replay.json_lines import Unexpected, kind

MOONCAKE = Grain(tokens=512, words=2)
CHAINS = Grain(tokens=16, words=2)

_HEAD_BLOCKS = 2
_LARGEST_ID = 2**64 - 1
_MAX_CHATS = 1 << 20
_NO_HASH = b"\xff" * 4


def read_mooncake(records: Records) -> Iterator[Request]:
    """Read ``timestamp`` (milliseconds), ``input_length``, ``output_length`` and ``hash_ids``.

    A hash stands for 512 tokens, the last one for what is left.  These traces name no
    conversations: as a router without a session id does, a request's conversation is told from
    its head, here its first two blocks.  The first alone is a system prompt that many share.
    """
    turns = TurnCounter()

    def request(value: Any, number: int) -> Request:
        record = as_object(value)
        at = milliseconds("timestamp", record.get("timestamp"))
        ids = _hash_ids(record)
        conversation = "-".join(map(str, ids[:_HEAD_BLOCKS]))
        turn = turns.next(conversation) if conversation else 1
        return _request(record, ids, MOONCAKE, conversation, turn, at)

    return records.read(request)


def read_chains(records: Records) -> Iterator[Request]:
    """Read ``chat_id``, ``parent_chat_id``, ``timestamp`` (seconds), lengths and ``hash_ids``.

    A hash stands for 16 tokens.  A request goes on from the one that is its parent; -1, or null:
    from none.  Where the record has its ``turn``, that counts.
    """
    chats: OrderedDict[int, tuple[str, int]] = OrderedDict()

    def request(value: Any, number: int) -> Request:
        record = as_object(value)
        chat = whole("chat_id", record.get("chat_id"), 0, _LARGEST_ID)
        parent = record.get("parent_chat_id")
        parent = -1 if parent is None else whole("parent_chat_id", parent, -1, _LARGEST_ID)
        conversation, before = chats.get(parent, (str(chat), 0))
        turn = whole("turn", record.get("turn", before + 1), 1, MAX_LENGTH)
        made = _request(record, _hash_ids(record), CHAINS, conversation, turn, time_of(record))
        chats[chat] = conversation, turn
        if len(chats) > _MAX_CHATS:
            chats.popitem(last=False)
        return made

    return records.read(request)


def _hash_ids(record: dict[str, Any]) -> list[int]:
    ids = record.get("hash_ids")
    if not isinstance(ids, list):
        raise Unexpected(f"hash_ids: expected a list, got {kind(ids)}")
    return [whole("hash_ids", hash_id, 0, _LARGEST_ID) for hash_id in ids]


def _request(
    record: dict[str, Any],
    ids: list[int],
    grain: Grain,
    conversation: str,
    turn: int,
    at: float | None,
) -> Request:
    tokens = whole("input_length", record.get("input_length"), 1, MAX_LENGTH)
    full, partial = divmod(tokens, grain.tokens)
    if not full <= len(ids) <= full + bool(partial):
        raise Unexpected(
            f"hash_ids: expected {full + bool(partial)}, one for {grain.tokens} tokens of "
            f"{tokens}, got {len(ids)}"
        )
    # Of a partial block one word stays, also where the trace has no hash for it: no cache keeps it.
    hashed = np.array(ids, dtype="<u8").tobytes() + _NO_HASH
    words = hashed[: 8 * full + 4 * bool(partial)]
    answer_tokens = whole("output_length", record.get("output_length"), 0, MAX_LENGTH)
    return Request(conversation, turn, words, b"", tokens, answer_tokens, at)
