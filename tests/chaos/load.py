"""Conversations without an end, held by the ``openai`` client, and how each turn of them went."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import openai
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionMessageParam,
)

from tests.chaos.fleet import Server

_CONVERSATIONS = 6
_TURNS = 6
_ANSWER_TOKENS = 16
_DEADLINE_S = 30.0
# Longer than a turn should ever take: one that hangs is a failed one.
_CLIENT_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Turn:
    """One turn: served by ``node``; or ``cut`` within its stream, or ``failed``, and how."""

    conversation: str
    number: int
    node: str = ""
    cut: str = ""
    failed: str = ""


class Load:
    """Turns that were played so far."""

    def __init__(self, clients: Sequence[openai.AsyncOpenAI]) -> None:
        self.turns: list[Turn] = []
        self._clients = clients
        self._played = asyncio.Condition()

    @property
    def served(self) -> list[Turn]:
        return [turn for turn in self.turns if not turn.cut and not turn.failed]

    @property
    def failed(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.failed]

    @property
    def cut(self) -> list[Turn]:
        return [turn for turn in self.turns if turn.cut]

    async def more(self, count: int) -> list[Turn]:
        """Wait until so many more turns were played, and return them."""
        start = len(self.turns)
        async with asyncio.timeout(_DEADLINE_S), self._played:
            await self._played.wait_for(lambda: len(self.turns) >= start + count)
        return self.turns[start:]

    async def converse(self, name: str, *, stream: bool) -> None:
        """Hold one conversation; a turn that was cut is asked again."""
        messages: list[ChatCompletionMessageParam] = [
            {"role": "system", "content": "You are patient. " * 20}
        ]
        for number in range(1, _TURNS + 1):
            messages.append({"role": "user", "content": f"{name}, question {number}: why?"})
            answer = None
            while answer is None:
                turn, answer = await self._play(name, number, messages, stream)
                async with self._played:
                    self.turns.append(turn)
                    self._played.notify_all()
            messages.append({"role": "assistant", "content": answer})

    async def _play(
        self, name: str, number: int, messages: list[ChatCompletionMessageParam], stream: bool
    ) -> tuple[Turn, str | None]:
        """Ask one router after the other, as long as none has begun to answer."""
        failed = ""
        for client in self._clients:
            try:
                answered = await client.chat.completions.with_raw_response.create(
                    model="test", messages=messages, stream=stream, max_tokens=_ANSWER_TOKENS
                )
            except openai.APIError as error:
                failed = repr(error)
                continue
            node = answered.headers["x-prefix-cache-node"]
            try:
                text = await _text(answered.parse())
            except Exception as error:  # of whatever library the client has below it
                return Turn(name, number, node, cut=repr(error)), None
            if len(text) == _ANSWER_TOKENS:
                return Turn(name, number, node), text
            return Turn(name, number, node, failed=f"took {text!r} for the whole"), None
        return Turn(name, number, failed=failed), None


async def _text(answer: ChatCompletion | openai.AsyncStream[ChatCompletionChunk]) -> str:
    """All that was said."""
    if isinstance(answer, ChatCompletion):
        return answer.choices[0].message.content or ""
    pieces = [chunk.choices[0].delta.content or "" async for chunk in answer]
    return "".join(pieces)


@asynccontextmanager
async def running_load(
    *routers: Server, streams: Sequence[bool] = (True, False)
) -> AsyncIterator[Load]:
    """Conversations over ``routers``, the first of them first, while the context is open.

    ``streams`` says of one conversation after the other whether it streams.  When one is over,
    another begins.  At the end those that are under way are held to their end.
    """
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(
                openai.AsyncOpenAI(
                    base_url=f"{router.url}/v1",
                    api_key="key",
                    max_retries=0,
                    timeout=_CLIENT_TIMEOUT_S,
                )
            )
            for router in routers
        ]
        load = Load(clients)
        is_over = asyncio.Event()

        async def one_after_the_other(place: int) -> None:
            for number in itertools.count(1):
                await load.converse(f"chat {place}.{number}", stream=streams[place % len(streams)])
                if is_over.is_set():
                    return

        async with asyncio.TaskGroup() as group:
            for place in range(_CONVERSATIONS):
                group.create_task(one_after_the_other(place))
            yield load
            is_over.set()
