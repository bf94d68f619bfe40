"""Holds a chat with workers over HTTP, by the ``openai`` client, with the cache and without."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from prefix_cache.errors import MissingExtra, Unavailable
from prefix_cache.replay.conversations import read_conversations
from prefix_cache.replay.player import PlayedTurn
from prefix_cache.replay.savings import Totals
from prefix_cache.worker.reencoding import reencoding_loss

try:
    import openai
except ImportError:
    raise MissingExtra(
        "chats with workers need the client of OpenAI: pip install openai", extra="openai"
    ) from None

if TYPE_CHECKING:
    from openai.types.chat import ChatCompletionMessageParam

BLOCK_SIZE = 16
ARMS = ("cached", "uncached")
_ANSWER_TOKENS = 48


@dataclass(frozen=True, slots=True)
class WorkerTurn(PlayedTurn):
    """A turn that was answered twice, and the seconds to the first token of each.

    ``lost_tokens`` were computed again since the answer before came back as text, which has
    other tokens than those that were generated.
    """

    ttft_cached_s: float
    ttft_uncached_s: float
    lost_tokens: int
    same_text: bool


@dataclass(frozen=True)
class WorkerChat:
    """A chat that was held."""

    turns: tuple[WorkerTurn, ...]

    @property
    def totals(self) -> Totals:
        """Prompt tokens of all turns, with the cache."""
        return Totals.of(self.turns)

    @property
    def same_text(self) -> bool:
        """Whether every answer was the same with the cache as without."""
        return all(turn.same_text for turn in self.turns)

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        without = Totals(self.totals.prompt_tokens, cached_tokens=0)
        return {
            "turns": [
                asdict(turn) | {"prefilled_tokens": turn.prefilled_tokens} for turn in self.turns
            ],
            "totals": self.totals.as_json(without),
            "same_text": self.same_text,
        }


async def hold_chat(url: str, num_turns: int, on_answer: Callable[[str], None]) -> WorkerChat:
    """Hold a chat of so many turns with what serves at ``url``.

    Every turn is asked under a salt that finds nothing cached, and under none; ``on_answer`` is
    called with the arm after each.  Raises Unavailable for a turn that is not answered.
    """
    system, questions = _script(num_turns)
    messages: list[ChatCompletionMessageParam] = [{"role": "system", "content": system}]
    turns: list[WorkerTurn] = []
    before: _Answer | None = None
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        try:
            model = (await client.models.list()).data[0].id
            for number, question in enumerate(questions, start=1):
                messages.append({"role": "user", "content": question})
                uncached = await _ask(client, model, messages, salt=uuid.uuid4().hex)
                on_answer("uncached")
                cached = await _ask(client, model, messages, salt="")
                on_answer("cached")
                turns.append(_turn(number, before, cached, uncached))
                messages.append({"role": "assistant", "content": cached.text})
                before = cached
        except openai.OpenAIError as error:
            raise Unavailable(f"{url}: turn {len(turns) + 1} was not answered: {error}") from None
    return WorkerChat(tuple(turns))


def _script(num_turns: int) -> tuple[str, Sequence[str]]:
    """The system prompt of the built-in chats, and what their users say one after the other."""
    with resources.as_file(resources.files(__package__) / "chats.jsonl") as path:
        chats = list(read_conversations(path))
    system = chats[0].messages[0].text
    said = [
        message.text
        for chat in chats
        if chat.messages[0].text == system
        for message in chat.messages
        if message.role == "user"
    ]
    return system, [said[turn % len(said)] for turn in range(num_turns)]


@dataclass
class _Answer:
    node: str
    ttft_s: float = 0.0
    text: str = ""
    prompt_ids: list[int] = field(default_factory=list)
    answer_ids: list[int] = field(default_factory=list)
    cached_tokens: int = 0


async def _ask(
    client: openai.AsyncOpenAI, model: str, messages: list[ChatCompletionMessageParam], salt: str
) -> _Answer:
    asked = time.monotonic()
    raw = await client.chat.completions.with_raw_response.create(
        model=model,
        messages=messages,
        temperature=0,
        max_tokens=_ANSWER_TOKENS,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True, "cache_salt": salt},
        extra_headers={"X-Session-ID": f"demo {'un' if salt else ''}cached"},
    )
    answer = _Answer(raw.headers.get("x-prefix-cache-node", ""))
    async for chunk in raw.parse():
        answer.ttft_s = answer.ttft_s or time.monotonic() - asked
        answer.prompt_ids += (chunk.model_extra or {}).get("prompt_token_ids") or []
        for choice in chunk.choices:
            answer.text += choice.delta.content or ""
            answer.answer_ids += (choice.model_extra or {}).get("token_ids") or []
        if chunk.usage is not None and chunk.usage.prompt_tokens_details is not None:
            answer.cached_tokens = chunk.usage.prompt_tokens_details.cached_tokens or 0
    return answer


def _turn(number: int, before: _Answer | None, cached: _Answer, uncached: _Answer) -> WorkerTurn:
    lost_tokens = 0
    if before is not None:
        lost_tokens = reencoding_loss(
            before.prompt_ids, before.answer_ids, cached.prompt_ids, BLOCK_SIZE
        ).lost_tokens
    return WorkerTurn(
        conversation="demo",
        turn=number,
        prompt_tokens=len(cached.prompt_ids),
        cached_tokens=cached.cached_tokens,
        node=cached.node,
        ttft_cached_s=cached.ttft_s,
        ttft_uncached_s=uncached.ttft_s,
        lost_tokens=lost_tokens,
        same_text=cached.text == uncached.text,
    )
