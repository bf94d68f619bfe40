"""The steps of a turn in the index, by share of the prompt that hits, pool and events."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Callable

import numpy as np

from prefix_cache import BlockCache
from prefix_cache.cli.bench.baseline import Cache, NaiveBlockCache, Sequence
from prefix_cache.cli.bench.harness import Case, Sample, Side, Stopwatch
from prefix_cache.index import Event
from prefix_cache.index.tokens import TOKEN_BYTES, Tokens
from tests.bench.prompts import BLOCK_SIZE, WHO, new_prompts, random_tokens, unlike_from
from tests.bench.scale import Scale

_POOL = 4  # prompts that a pool to be filled holds


async def turn_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Against the usual block manager, which knows no events."""
    for length, percent, full, events in itertools.product(
        (scale.short_prompt, scale.long_prompt), (0, 50, 100), (False, True), (False, True)
    ):
        base = random_tokens(length)
        hit = length * percent // 100
        pool = _POOL * length // BLOCK_SIZE
        if not full:
            pool += (1 + scale.turns) * (length // BLOCK_SIZE + 1)
        yield Case(
            f"{length:,} tokens, {percent} % hit, {'full' if full else 'empty'} pool, "
            f"events {'on' if events else 'off'}",
            _turns(_naive(pool), base, hit, full, scale.turns),
            _turns(_index(pool, events), base, hit, full, scale.turns),
        )


async def aligned_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Prompts that end where a cached block ends: the block of their last token is computed."""
    for length in (scale.short_prompt, scale.long_prompt):
        prompt = random_tokens(length)
        pool = _POOL * length // BLOCK_SIZE
        yield Case(
            f"{length:,} tokens, all cached",
            _same_turns(_naive(pool), prompt, scale.turns),
            _same_turns(_index(pool, events=False), prompt, scale.turns),
        )


async def form_cases(scale: Scale) -> AsyncGenerator[Case]:
    """A cached prompt as bytes, numpy array and list, all of which both sides take."""
    for length in (scale.short_prompt, scale.long_prompt):
        tokens = random_tokens(length + 1)
        array = np.frombuffer(tokens, "<u4")
        forms: dict[str, Tokens] = {
            "bytes": tokens,
            "numpy uint32": array,
            "numpy int64": array.astype(np.int64),
            "list": array.tolist(),
        }
        pool = _POOL * length // BLOCK_SIZE
        for form, prompt in forms.items():
            yield Case(
                f"{length:,} tokens as {form}, 100 % hit",
                _same_turns(_naive(pool), prompt, scale.turns),
                _same_turns(_index(pool, events=False), prompt, scale.turns),
            )


def _naive(num_blocks: int) -> Callable[[], NaiveBlockCache]:
    return lambda: NaiveBlockCache(num_blocks, BLOCK_SIZE)


def _index(num_blocks: int, events: bool) -> Callable[[], BlockCache]:
    """Events go where the node's would: into a list."""

    def cache() -> BlockCache:
        seen: list[Event] = []
        return BlockCache(num_blocks, BLOCK_SIZE, on_event=seen.append if events else None)

    return cache


def _turns(
    new_cache: Callable[[], Cache[Sequence]], base: bytes, hit: int, full: bool, times: int
) -> Side:
    """In a new cache, with other prompts in it if it is to be full, and with ``base``."""

    async def side() -> Sample:
        cache = new_cache()
        num_tokens = len(base) // TOKEN_BYTES
        if full:
            for prompt in itertools.islice(new_prompts(num_tokens), _POOL):
                _turn(cache, prompt, Stopwatch())
        _turn(cache, base, Stopwatch())
        watch = Stopwatch()
        for _ in range(times):
            _turn(cache, unlike_from(base, hit), watch)
        return _with_total(watch.sample(times))

    return side


def _same_turns(new_cache: Callable[[], Cache[Sequence]], prompt: Tokens, times: int) -> Side:
    async def side() -> Sample:
        cache = new_cache()
        _turn(cache, prompt, Stopwatch())
        watch = Stopwatch()
        for _ in range(times):
            _turn(cache, prompt, watch)
        return _with_total(watch.sample(times))

    return side


def _turn(cache: Cache[Sequence], prompt: Tokens, watch: Stopwatch) -> None:
    watch.start()
    cache.match(WHO, prompt)
    watch.lap("find")
    sequence = cache.acquire(WHO, prompt)
    watch.lap("acquire")
    cache.commit(sequence, _num_tokens(prompt))
    watch.lap("commit")
    cache.append(sequence, b"\0\0\0\0")
    watch.lap("append")
    cache.release(sequence)
    watch.lap("release")


def _with_total(steps: Sample) -> Sample:
    """Steps and their sum but for ``find``: one side hashes at acquire, the other at commit."""
    return {**steps, "acquire to release": sum(steps.values()) - steps["find"]}


def _num_tokens(prompt: Tokens) -> int:
    return len(prompt) // TOKEN_BYTES if isinstance(prompt, bytes) else len(prompt)
