"""What a host tier costs in the index: each case with it against the same without."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator

from prefix_cache import BlockCache
from prefix_cache.cli.bench.harness import Case, Sample, Side, Stopwatch
from tests.bench.prompts import BLOCK_SIZE, WHO, new_prompts, random_tokens
from tests.bench.scale import Scale


async def host_tier_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Without a host tier what was evicted is hashed and stored again."""
    for length in (scale.short_prompt, scale.long_prompt):
        yield Case(
            f"{length:,} tokens swapped out and in",
            _swaps(length, scale.turns, host=False),
            _swaps(length, scale.turns, host=True),
        )
        yield Case(
            f"a block evicted from {length:,} tokens",
            _single_blocks(length, host=False),
            _single_blocks(length, host=True),
        )


def _swaps(length: int, times: int, *, host: bool) -> Side:
    """Three conversations take turns in memory for two: one is evicted and one comes back."""
    room = 2 * length // BLOCK_SIZE
    conversations = list(itertools.islice(new_prompts(length), 3))

    async def side() -> Sample:
        cache = BlockCache(room, BLOCK_SIZE, host_blocks=room if host else 0)
        for prompt in conversations:
            _turn(cache, prompt)
        watch = Stopwatch()
        watch.start()
        for _ in range(times):
            for prompt in conversations:
                _turn(cache, prompt)
        watch.lap("")
        return watch.sample(3 * times)

    return side


def _turn(cache: BlockCache, prompt: bytes) -> None:
    sequence = cache.acquire(WHO, prompt)
    if sequence.copies.copy_id:
        cache.acknowledge(sequence.copies.copy_id)
    cache.commit(sequence, sequence.num_tokens)
    cache.release(sequence)


def _single_blocks(length: int, *, host: bool) -> Side:
    """A sequence that decodes takes half of a conversation's blocks, one by one."""
    num_blocks = length // BLOCK_SIZE
    conversation = random_tokens(length)
    block = random_tokens(BLOCK_SIZE)

    async def side() -> Sample:
        cache = BlockCache(num_blocks, BLOCK_SIZE, host_blocks=num_blocks if host else 0)
        _turn(cache, conversation)
        decoding = cache.acquire(WHO, block)
        watch = Stopwatch()
        watch.start()
        for _ in range(num_blocks // 2):
            appended = cache.append(decoding, block)
            if appended.copy_id:
                cache.acknowledge(appended.copy_id)
        watch.lap("")
        return watch.sample(num_blocks // 2)

    return side
