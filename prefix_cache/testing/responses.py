"""The answers of ``/v1/responses``."""

from __future__ import annotations

import time
from typing import Any

from prefix_cache.openai_api.answers import event
from prefix_cache.plain_template import render, response_messages, utf8_tokens
from prefix_cache.testing.answers import words
from prefix_cache.testing.bodies import DEFAULT_LENGTH, ResponseBody
from prefix_cache.testing.worker import Decoding


class Response:
    """An answer of words, as one message."""

    def __init__(self, body: ResponseBody, request_id: str) -> None:
        self.prompt = utf8_tokens(render(response_messages(body.instructions, body.input)))
        self._text = words(self.prompt, body.max_output_tokens or DEFAULT_LENGTH)
        self.answer = utf8_tokens(self._text)
        self.stream = bool(body.stream)
        self._events = 0
        self._item_id = f"msg_{request_id}"
        self._envelope = {
            "id": f"resp_{request_id}",
            "object": "response",
            "created_at": int(time.time()),
            "model": body.model,
            "instructions": body.instructions,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }

    def whole(self, decoding: Decoding) -> dict[str, Any]:
        """Return the whole answer."""
        usage = {
            "input_tokens": decoding.prompt_tokens,
            "input_tokens_details": {"cached_tokens": decoding.cached_tokens},
            "output_tokens": decoding.decoded,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": decoding.prompt_tokens + decoding.decoded,
        }
        output = [self._item("completed", [self._part(self._text)])]
        return {**self._envelope, "status": "completed", "output": output, "usage": usage}

    def opening(self) -> list[bytes]:
        """Return that a response, in it a message, in it a text begins."""
        created = {**self._envelope, "status": "in_progress", "output": []}
        item = self._item("in_progress", [])
        return [
            self._event("response.created", response=created),
            self._event("response.output_item.added", output_index=0, item=item),
            self._event("response.content_part.added", **self._place(), part=self._part("")),
        ]

    def piece(self, number: int) -> list[bytes]:
        """Return one character."""
        return [
            self._event(
                "response.output_text.delta", **self._place(), delta=self._text[number], logprobs=[]
            )
        ]

    def closing(self, decoding: Decoding) -> list[bytes]:
        """Return that text, message and response are over; the last event is all of it."""
        whole = self.whole(decoding)
        place, part = self._place(), self._part(self._text)
        return [
            self._event("response.output_text.done", **place, text=self._text, logprobs=[]),
            self._event("response.content_part.done", **place, part=part),
            self._event("response.output_item.done", output_index=0, item=whole["output"][0]),
            self._event("response.completed", response=whole),
        ]

    def _event(self, kind: str, **data: Any) -> bytes:
        number, self._events = self._events, self._events + 1
        return event({"type": kind, "sequence_number": number, **data}, kind)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": 0, "content_index": 0}

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._item_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": []}
