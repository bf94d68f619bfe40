"""The answers of ``/v1/chat/completions``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prefix_cache.errors import InvalidRequest
from prefix_cache.openai_api.answers import DONE, Envelope, chat_choice, chat_piece
from prefix_cache.openai_api.bodies import Function, Tool
from prefix_cache.plain_template import canonical_json, render, utf8_tokens
from prefix_cache.testing.answers import tool_call, words
from prefix_cache.testing.bodies import DEFAULT_LENGTH, ChatBody, read_functions
from prefix_cache.testing.forms import usage
from prefix_cache.testing.worker import Decoding


class Chat:
    """An answer of words; or a call of a tool, where ``tool_choice`` requires or names one."""

    def __init__(self, body: ChatBody, request_id: str) -> None:
        self.prompt = utf8_tokens(render(body.messages, body.tools or []))
        self.stream = bool(body.stream)
        self._with_usage = body.wants_usage
        self._envelope = Envelope("chat.completion", request_id, body.model)
        function = _function_to_call(body)
        self._calls = [tool_call(self.prompt, function)] if function else []
        if self._calls:
            self._text = canonical_json(self._calls)  # as it is in the prompt of the next turn
            self._finish = "tool_calls"
        else:
            length = body.max_completion_tokens or body.max_tokens
            self._text = words(self.prompt, length or DEFAULT_LENGTH)
            self._finish = "length" if length else "stop"
        self.answer = utf8_tokens(self._text)

    def whole(self, decoding: Decoding) -> dict[str, Any]:
        """Return the whole answer."""
        said = {"content": None, "tool_calls": self._calls}
        message = said if self._calls else {"content": self._text}
        return self._envelope.whole([chat_choice(0, message, self._finish)], usage(decoding))

    def opening(self) -> list[bytes]:
        """Return whose message begins."""
        return [self._chunk({"role": "assistant", "content": None if self._calls else ""})]

    def piece(self, number: int) -> list[bytes]:
        """Return one character; a call of a tool comes when all of it is there."""
        return [] if self._calls else [self._chunk({"content": self._text[number]})]

    def closing(self, decoding: Decoding) -> list[bytes]:
        """Return the call, why the answer ended, and the usage if that was asked for."""
        events = [self._chunk({"tool_calls": [piece]}) for piece in self._call_pieces()]
        events.append(self._chunk({}, self._finish))
        if self._with_usage:
            events.append(self._envelope.usage_chunk(usage(decoding)))
        return [*events, DONE]

    def _call_pieces(self) -> Iterator[dict[str, Any]]:
        for index, call in enumerate(self._calls):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            yield {**call, "index": index, "function": {"name": name, "arguments": ""}}
            yield {"index": index, "function": {"arguments": arguments}}

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        return self._envelope.chunk(chat_piece(0, delta, finish_reason))


def _function_to_call(body: ChatBody) -> Function | None:
    """The function that the client wants called, if it wants one."""
    choice = body.tool_choice
    if choice in (None, "none", "auto"):
        return None
    functions = read_functions(body.tools or [])
    if isinstance(choice, Tool):
        functions = [function for function in functions if function.name == choice.function.name]
    if not functions:
        raise InvalidRequest(
            "tool_choice asks for a function that is not in tools", param="tool_choice"
        )
    return functions[0]
