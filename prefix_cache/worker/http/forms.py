"""How requests of each path are read and answered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from prefix_cache.openai_api.answers import (
    Document,
    Envelope,
    Kind,
    chat_choice,
    chat_piece,
    text_choice,
)
from prefix_cache.openai_api.bodies import ChatBody, GeneratingBody
from prefix_cache.worker.http.completion_body import CompletionBody
from prefix_cache.worker.http.prompts import Prompts
from prefix_cache.worker.request import RequestOutput

_Body = TypeVar("_Body", bound=GeneratingBody)


@dataclass
class WholeAnswer:
    """One answer, gathered from what steps brought."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None

    def add(self, output: RequestOutput) -> None:
        """Go on with what a step brought."""
        self.text += output.text
        self.token_ids += output.token_ids
        self.finish_reason = output.finish_reason


class Form(ABC, Generic[_Body]):
    """One request: its prompts, and the documents that answer it.

    ``prompt_ids`` are the tokens of each prompt.  Answers are numbered through: those to the first
    prompt come first.  ``max_tokens`` is None where the body does not say: as many as fit then, but
    not more than ``default_length`` if there is one.
    """

    kind: Kind
    default_length: int | None
    prompt_ids: Sequence[Sequence[int]]
    max_tokens: int | None

    def __init__(self, body: _Body, request_id: str) -> None:
        self.body = body
        self.envelope = Envelope(self.kind, request_id, body.model)

    @abstractmethod
    def whole(self, answers: Sequence[WholeAnswer], usage: Document) -> Document:
        """Return the answer to a request that wants no stream."""

    @abstractmethod
    def opening(self, index: int) -> list[bytes]:
        """Return the events before the first piece of an answer."""

    @abstractmethod
    def piece(self, output: RequestOutput) -> bytes:
        """Return the event that tells what a step brought."""

    def _ids(self, name: str, token_ids: Sequence[int]) -> dict[str, Any]:
        """The tokens under a name, for who wants tokens."""
        return {name: token_ids} if self.body.return_token_ids else {}


class ChatForm(Form[ChatBody]):
    """``/v1/chat/completions``."""

    kind = "chat.completion"
    default_length = None

    def __init__(self, body: ChatBody, prompts: Prompts, request_id: str) -> None:
        super().__init__(body, request_id)
        self.max_tokens = body.max_completion_tokens or body.max_tokens
        self.prompt_ids = [prompts.of_chat(body.messages, body.tools, body.chat_template_kwargs)]

    def whole(self, answers: Sequence[WholeAnswer], usage: Document) -> Document:
        """Return all choices."""
        choices = [
            chat_choice(
                index,
                {"content": answer.text},
                answer.finish_reason,
                **self._ids("token_ids", answer.token_ids),
            )
            for index, answer in enumerate(answers)
        ]
        prompt = self._ids("prompt_token_ids", self.prompt_ids[0])
        return self.envelope.whole(choices, usage, **prompt)

    def opening(self, index: int) -> list[bytes]:
        """Return whose message begins."""
        prompt = self._ids("prompt_token_ids", self.prompt_ids[0])
        delta = {"role": "assistant", "content": ""}
        return [self.envelope.chunk(chat_piece(index, delta), **prompt)]

    def piece(self, output: RequestOutput) -> bytes:
        """Return the new text."""
        ids = self._ids("token_ids", output.token_ids)
        delta = {"content": output.text}
        return self.envelope.chunk(chat_piece(output.index, delta, output.finish_reason, **ids))


class CompletionForm(Form[CompletionBody]):
    """``/v1/completions``."""

    kind = "text_completion"
    default_length = 16

    def __init__(self, body: CompletionBody, prompts: Prompts, request_id: str) -> None:
        super().__init__(body, request_id)
        self.max_tokens = body.max_tokens
        self.prompt_ids = [
            prompts.of_text(prompt) if isinstance(prompt, str) else prompt
            for prompt in body.prompts()
        ]

    def whole(self, answers: Sequence[WholeAnswer], usage: Document) -> Document:
        """Return all choices."""
        choices = [
            text_choice(
                index,
                answer.text,
                answer.finish_reason,
                **self._prompt_of(index),
                **self._ids("token_ids", answer.token_ids),
            )
            for index, answer in enumerate(answers)
        ]
        return self.envelope.whole(choices, usage)

    def opening(self, index: int) -> list[bytes]:
        """Return the tokens of the prompt, if they are wanted."""
        prompt = self._prompt_of(index)
        return [self.envelope.chunk(text_choice(index, "", **prompt))] if prompt else []

    def piece(self, output: RequestOutput) -> bytes:
        """Return the new text."""
        ids = self._ids("token_ids", output.token_ids)
        choice = text_choice(output.index, output.text, output.finish_reason, **ids)
        return self.envelope.chunk(choice)

    def _prompt_of(self, index: int) -> dict[str, Any]:
        return self._ids("prompt_token_ids", self.prompt_ids[index // self.body.num_answers])
