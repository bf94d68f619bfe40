"""What ``prefix-cache bench`` measures."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator

import numpy as np

from prefix_cache import BlockCache, Identity
from prefix_cache.cli.bench.baseline import Cache, NaiveBlockCache, Sequence
from prefix_cache.cli.bench.harness import Case, Work, repeated
from prefix_cache.client import Acquire, AsyncNodeClient, AsyncSession, Commit, Release

_IDENTITY = Identity(model="bench")
_BLOCK_SIZE = 16
_NUM_TOKENS = 8192
_PROMPT = np.arange(_NUM_TOKENS, dtype="<u4").tobytes()
_TOKEN = struct.pack("<I", 7)
_NUM_APPENDED = 256


def index_cases() -> Iterator[Case]:
    """The index against one hash, entry and count per block, in this process."""
    yield _turn_case("index: turn, 8,192 tokens cached", lambda: itertools.repeat(_PROMPT))
    yield _turn_case("index: turn, 512 blocks evicted", _new_prompts)
    ours, naive = _caches(2048)
    yield Case(
        "index: match 8,192 tokens",
        repeated(_match(naive), 20),
        repeated(_match(ours), 20),
    )
    ours, naive = _caches(2**17)
    yield Case(
        f"index: append {_NUM_APPENDED} x 1 token",
        repeated(_append(naive), 10),
        repeated(_append(ours), 10),
    )


def node_case(transport: str, client: AsyncNodeClient, session: AsyncSession) -> Case:
    """One turn as a step of a session, against the same as three unary calls."""

    async def unary() -> None:
        sequence = await client.acquire(_IDENTITY, _PROMPT)
        await client.commit(sequence.id, _NUM_TOKENS)
        await client.release(sequence.id)

    async def step() -> None:
        await session.step([Acquire(1, _IDENTITY, _PROMPT), Commit(1, _NUM_TOKENS), Release(1)])

    return Case(f"node, {transport}: turn, 8,192 cached", repeated(unary, 20), repeated(step, 20))


def _caches(num_blocks: int) -> tuple[BlockCache, NaiveBlockCache]:
    return BlockCache(num_blocks, _BLOCK_SIZE), NaiveBlockCache(num_blocks, _BLOCK_SIZE)


def _new_prompts() -> Iterator[bytes]:
    """Prompts that differ from their first token on."""
    for first in itertools.count(_NUM_TOKENS):
        yield struct.pack("<I", first) + _PROMPT[4:]


def _turn_case(name: str, prompts: Callable[[], Iterator[bytes]]) -> Case:
    ours, naive = _caches(2048)
    return Case(name, repeated(_turn(naive, prompts()), 20), repeated(_turn(ours, prompts()), 20))


def _turn(cache: Cache[Sequence], prompts: Iterator[bytes]) -> Work:
    async def turn() -> None:
        sequence = cache.acquire(_IDENTITY, next(prompts))
        cache.commit(sequence, _NUM_TOKENS)
        cache.release(sequence)

    return turn


def _match(cache: Cache[Sequence]) -> Work:
    cache.commit(cache.acquire(_IDENTITY, _PROMPT), _NUM_TOKENS)

    async def match() -> None:
        cache.match(_IDENTITY, _PROMPT)

    return match


def _append(cache: Cache[Sequence]) -> Work:
    sequence = cache.acquire(_IDENTITY, _PROMPT)

    async def append() -> None:
        for _ in range(_NUM_APPENDED):
            cache.append(sequence, _TOKEN)

    return append
