"""Plays conversations over HTTP, as users of a chat would: several at once, with pauses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import aiohttp
import msgspec

from prefix_cache.errors import Unavailable
from prefix_cache.replay.http_conversations import HttpConversation
from prefix_cache.replay.player import PlayedTurn

_ANSWER_TOKENS = 32


@dataclass(frozen=True, slots=True)
class HttpTurn(PlayedTurn):
    """A turn whose answer began to come ``ttft_s`` seconds after it was asked."""

    ttft_s: float


@dataclass(frozen=True)
class HttpPlayer:
    """Plays through the OpenAI API at ``url``.

    A conversation begins ``between_starts_s`` after the one before it; its user thinks for
    ``think_s`` before each further turn.
    """

    url: str
    model: str
    between_starts_s: float = 0.1
    think_s: float = 0.3

    async def play(
        self, conversations: Sequence[HttpConversation], on_turn: Callable[[], None]
    ) -> list[HttpTurn]:
        """Play all; return the turns in the order in which they ended.

        Raises ``Unavailable`` for a turn that was not answered.
        """
        turns: list[HttpTurn] = []

        def done(turn: HttpTurn) -> None:
            turns.append(turn)
            on_turn()

        connections = aiohttp.TCPConnector(limit=0)
        try:
            async with (
                aiohttp.ClientSession(self.url, connector=connections) as http,
                asyncio.TaskGroup() as group,
            ):
                for number, conversation in enumerate(conversations):
                    start_s = number * self.between_starts_s
                    group.create_task(self._converse(http, conversation, start_s, done))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None
        return turns

    async def _converse(
        self,
        http: aiohttp.ClientSession,
        conversation: HttpConversation,
        start_s: float,
        done: Callable[[HttpTurn], None],
    ) -> None:
        await asyncio.sleep(start_s)
        messages: list[dict[str, str]] = [{"role": "system", "content": conversation.system}]
        for number, question in enumerate(conversation.questions, start=1):
            messages.append({"role": "user", "content": question})
            try:
                answer, turn = await self._ask(http, conversation.name, number, messages)
            except (aiohttp.ClientError, msgspec.DecodeError) as error:
                raise Unavailable(f"{self.url}: turn {number} was not answered: {error}") from None
            done(turn)
            messages.append({"role": "assistant", "content": answer})
            await asyncio.sleep(self.think_s)

    async def _ask(
        self,
        http: aiohttp.ClientSession,
        conversation: str,
        number: int,
        messages: list[dict[str, str]],
    ) -> tuple[str, HttpTurn]:
        body = {
            "model": self.model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": _ANSWER_TOKENS,
        }
        answer, first, usage = "", 0.0, _Usage()
        asked = time.monotonic()
        async with http.post("/v1/chat/completions", json=body, raise_for_status=True) as response:
            async for line in response.content:
                if not line.startswith(b"data: {"):
                    continue
                first = first or time.monotonic()
                chunk = msgspec.json.decode(line[len("data: ") :], type=_Chunk)
                answer += "".join(choice.delta.content or "" for choice in chunk.choices)
                usage = chunk.usage or usage
        return answer, HttpTurn(
            conversation=conversation,
            turn=number,
            ttft_s=first - asked,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.prompt_tokens_details.cached_tokens,
            node=response.headers.get("x-prefix-cache-node", ""),
        )


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta


class _PromptTokensDetails(msgspec.Struct):
    cached_tokens: int = 0


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    prompt_tokens_details: _PromptTokensDetails = msgspec.field(
        default_factory=_PromptTokensDetails
    )


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
