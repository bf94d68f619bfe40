"""Answers as clients of the API know them: whole, and as the events of a stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

Document = dict[str, Any]
Kind = Literal["chat.completion", "text_completion"]

_ID_PREFIX = {"chat.completion": "chatcmpl", "text_completion": "cmpl"}

DONE = b"data: [DONE]\n\n"


def event(data: Document, name: str = "") -> bytes:
    """Return one server-sent event."""
    head = f"event: {name}\n" if name else ""
    return head.encode() + b"data: " + msgspec.json.encode(data) + b"\n\n"


def usage(prompt_tokens: int, cached_tokens: int, completion_tokens: int) -> Document:
    """Return the tokens of an answer that is complete."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def tokenized(token_ids: Sequence[int], max_model_len: int) -> Document:
    """Return the answer of ``/tokenize``, as vLLM has it."""
    return {"count": len(token_ids), "max_model_len": max_model_len, "tokens": token_ids}


class Envelope:
    """What every document of one answer says besides; ``more`` fields follow."""

    def __init__(self, kind: Kind, request_id: str, model: str) -> None:
        self._head = {
            "id": f"{_ID_PREFIX[kind]}-{request_id}",
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }
        chunk_kind = "chat.completion.chunk" if kind == "chat.completion" else kind
        self._chunk_head = {**self._head, "object": chunk_kind}

    def whole(self, choices: list[Document], usage: Document, **more: object) -> Document:
        """Return the answer to a request that wants no stream."""
        return {**self._head, "choices": choices, "usage": usage, **more}

    def chunk(self, choice: Document, **more: object) -> bytes:
        """Return the event that brings a piece of one choice."""
        return event({**self._chunk_head, "choices": [choice], **more})

    def usage_chunk(self, usage: Document) -> bytes:
        """Return the event that says the usage."""
        return event({**self._chunk_head, "choices": [], "usage": usage})


def chat_choice(
    index: int, message: Document, finish_reason: str | None, **more: object
) -> Document:
    """Return a choice of a whole chat answer; ``message`` lacks its role."""
    said = {"role": "assistant", **message}
    return _choice(index, finish_reason, message=said, **more)


def chat_piece(
    index: int, delta: Document, finish_reason: str | None = None, **more: object
) -> Document:
    """Return a piece of a choice of a chat."""
    return _choice(index, finish_reason, delta=delta, **more)


def text_choice(
    index: int, text: str, finish_reason: str | None = None, **more: object
) -> Document:
    """Return a choice of a completion, or a piece of it."""
    return _choice(index, finish_reason, text=text, **more)


def _choice(index: int, finish_reason: str | None, **said: object) -> Document:
    return {"index": index, **said, "logprobs": None, "finish_reason": finish_reason}
