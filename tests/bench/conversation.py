"""Late turns of a conversation against early ones, in the index."""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncGenerator

from prefix_cache import BlockCache
from prefix_cache.cli.bench.baseline import Cache, NaiveBlockCache, Sequence
from prefix_cache.cli.bench.harness import Case, Sample, Side
from prefix_cache.index import Prefix
from prefix_cache.index.tokens import TOKEN_BYTES
from tests.bench.dialogue import Dialogue
from tests.bench.prompts import BLOCK_SIZE, WHO
from tests.bench.scale import Scale


async def conversation_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Every turn has as many new tokens, and the pool has room for all."""
    late = scale.conversation_turns
    yield delta_case(scale)
    yield Case(f"full form, turn {late} against turn 2", _index(scale, 2), _index(scale, late))
    yield Case(f"full form, turn {late}", _naive(scale, late), _index(scale, late))


def delta_case(scale: Scale) -> Case:
    """A late turn against an early one."""
    late = scale.conversation_turns
    return Case(f"delta form, turn {late} against turn 2", _delta(scale, 2), _delta(scale, late))


def _index(scale: Scale, turns: int) -> Side:
    async def side() -> Sample:
        return _full_form(BlockCache(scale.conversation_blocks, BLOCK_SIZE), scale, turns)

    return side


def _naive(scale: Scale, turns: int) -> Side:
    async def side() -> Sample:
        return _full_form(NaiveBlockCache(scale.conversation_blocks, BLOCK_SIZE), scale, turns)

    return side


def _full_form(cache: Cache[Sequence], scale: Scale, turns: int) -> Sample:
    """Median microseconds of the last turn."""
    last_turns = []
    for _ in range(scale.conversations):
        dialogue = Dialogue(scale)
        for _ in range(turns):
            prompt, answered = dialogue.next_turn()
            start = time.perf_counter()
            sequence = cache.acquire(WHO, prompt)
            cache.commit(sequence, len(prompt) // TOKEN_BYTES)
            cache.append(sequence, dialogue.answer)
            cache.commit(sequence, len(answered) // TOKEN_BYTES)
            cache.release(sequence)
        last_turns.append(time.perf_counter() - start)
    return {"": statistics.median(last_turns) * 1e6}


def _delta(scale: Scale, turns: int) -> Side:
    async def side() -> Sample:
        cache = BlockCache(scale.conversation_blocks, BLOCK_SIZE)
        last_turns = []
        for _ in range(scale.conversations):
            dialogue = Dialogue(scale)
            after: Prefix | None = None
            new = dialogue.opening + dialogue.question
            num_tokens = len(dialogue.opening) // TOKEN_BYTES
            for _ in range(turns):
                start = time.perf_counter()
                sequence = cache.acquire(WHO, new, after=after)
                cache.commit(sequence, num_tokens + scale.question)
                cache.append(sequence, dialogue.answer)
                num_tokens += scale.question + scale.answer
                cache.commit(sequence, num_tokens)
                after = sequence.findable_prefix
                cache.release(sequence)
                new = dialogue.question
            last_turns.append(time.perf_counter() - start)
        return {"": statistics.median(last_turns) * 1e6}

    return side
