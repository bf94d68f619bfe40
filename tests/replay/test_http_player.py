"""Conversations played over HTTP against one engine."""

from __future__ import annotations

import pytest

from prefix_cache.errors import Unavailable
from prefix_cache.replay.http_conversations import HttpConversation, http_conversations
from prefix_cache.replay.http_player import HttpPlayer
from prefix_cache.testing import EngineConfig, Faults, running_engine

SYSTEM = "s" * 100


def player(url: str) -> HttpPlayer:
    return HttpPlayer(url, "demo", between_starts_s=0.0, think_s=0.0)


async def test_each_turn_brings_the_answer_of_the_turn_before_it() -> None:
    chats = [HttpConversation("one", SYSTEM, ("q" * 40, "r" * 40))]
    played = []
    async with running_engine(EngineConfig(model="demo")) as engine:
        turns = await player(engine.url).play(chats, lambda: played.append(1))
    # <|system|> 11 + 100 + 1, <|user|> 9 + 40 + 1, <|assistant|> 14; then the answer, 32 + 1.
    assert [turn.prompt_tokens for turn in turns] == [176, 176 + 33 + 50 + 14]
    assert [turn.cached_tokens for turn in turns] == [0, 208]
    assert [(turn.conversation, turn.turn) for turn in turns] == [("one", 1), ("one", 2)]
    assert all(turn.ttft_s > 0 for turn in turns)
    assert len(played) == 2


async def test_a_turn_that_is_not_answered_ends_the_play() -> None:
    chats = [HttpConversation(name, SYSTEM, ("q",) * 3) for name in ("one", "two")]
    for faults in (Faults(status=500), Faults(refuse=True), Faults(cut_after_items=3)):
        async with running_engine(EngineConfig(model="demo", faults=faults)) as engine:
            with pytest.raises(Unavailable, match="turn 1 was not answered"):
                await player(engine.url).play(chats, lambda: None)


def test_conversations_share_two_system_prompts_and_no_question() -> None:
    chats = http_conversations(12, 6)
    assert len({chat.name for chat in chats}) == 12
    assert len({chat.system for chat in chats}) == 2
    questions = [question for chat in chats for question in chat.questions]
    assert len(questions) == len(set(questions)) == 72
    assert min(map(len, questions)) > 1000
