"""Requests with the token ids of prompts and answers: traces, and logs of requests as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from prefix_cache.replay.formats.fields import as_object, first_of, name_of, time_of, token_ids
from prefix_cache.replay.formats.records import Records
from prefix_cache.replay.formats.request import Request
from prefix_cache.replay.formats.turn_counter import TurnCounter
from prefix_cache.replay.formats.usage import usage_of
from prefix_cache.replay.json_lines import Unexpected

PROMPT_IDS = ("input_tok_ids", "prompt_token_ids", "input_token_ids", "input_ids", "prompt_ids")
ANSWER_IDS = ("output_tok_ids", "output_token_ids", "output_ids", "completion_token_ids")

# Where logs keep what was asked and what came of it.
_INSIDE = ("obj", "request", "body", "out", "response")


def read_tokens(records: Records) -> Iterator[Request]:
    """Read token ids of the prompt, and of the answer where they are there.

    Without a session of its own a request is a conversation of its own.
    """
    turns = TurnCounter()

    def request(value: Any, number: int) -> Request:
        record = flat(as_object(value))
        prompt = token_ids("prompt token ids", first_of(record, PROMPT_IDS))
        if not prompt:
            raise Unexpected("prompt token ids: expected at least one")
        answer = token_ids("answer token ids", first_of(record, ANSWER_IDS) or [])
        session = name_of(record)
        turn = turns.next(session) if session else 1
        made = Request.of_tokens(session or f"line {number}", turn, prompt, answer, time_of(record))
        return replace(made, reported=usage_of(record))

    return records.read(request)


def flat(record: dict[str, Any]) -> dict[str, Any]:
    """Return the record with what its inner objects of request and response say."""
    inner = [record[name] for name in _INSIDE if isinstance(record.get(name), dict)]
    return {name: value for each in (*inner, record) for name, value in each.items()}
