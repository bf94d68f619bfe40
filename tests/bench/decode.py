"""Decoding in the index: many sequences, a token each per step; and what one hash costs."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator

from prefix_cache import BlockCache
from prefix_cache.cli.bench.baseline import Cache, NaiveBlockCache, Sequence
from prefix_cache.cli.bench.harness import Case, Sample, Side, Stopwatch
from prefix_cache.index.block_hash import BlockHasher, HashFunction
from prefix_cache.index.tokens import TOKEN_BYTES
from tests.bench.prompts import BLOCK_SIZE, WHO, new_prompts, random_tokens
from tests.bench.scale import Scale

_SEQUENCES = 64
_PROMPT = 128  # tokens
_TOKEN = random_tokens(1)


async def decode_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Append and commit one token, averaged over 64 sequences and all positions in a block."""
    num_blocks = _SEQUENCES * ((_PROMPT + scale.decoded_tokens) // BLOCK_SIZE + 1)
    yield Case(
        f"one of {_SEQUENCES} sequences, one token",
        _decode(NaiveBlockCache(num_blocks, BLOCK_SIZE), scale.decoded_tokens),
        _decode(BlockCache(num_blocks, BLOCK_SIZE), scale.decoded_tokens),
    )


async def hash_cases(scale: Scale) -> AsyncGenerator[Case]:
    """The chain hash of one block, against SHA-256 over the same bytes."""
    for length in (scale.short_prompt, scale.long_prompt):
        tokens = random_tokens(length)
        yield Case(f"one block of {length:,} tokens", _chain(tokens, _sha256), _chain(tokens, None))


def _decode(cache: Cache[Sequence], num_tokens: int) -> Side:
    prompts = new_prompts(_PROMPT)

    async def side() -> Sample:
        sequences = [cache.acquire(WHO, next(prompts)) for _ in range(_SEQUENCES)]
        watch = Stopwatch()
        watch.start()
        for committed in range(_PROMPT + 1, _PROMPT + num_tokens + 1):
            for sequence in sequences:
                cache.append(sequence, _TOKEN)
            watch.lap("append")
            for sequence in sequences:
                cache.commit(sequence, committed)
            watch.lap("commit")
        for sequence in sequences:
            cache.release(sequence)
        return watch.sample(_SEQUENCES * num_tokens)

    return side


def _chain(tokens: bytes, function: HashFunction | None) -> Side:
    hasher = BlockHasher(BLOCK_SIZE, function)
    root = hasher.root(WHO)

    async def side() -> Sample:
        watch = Stopwatch()
        watch.start()
        hasher.chain(root, tokens, {})
        watch.lap("")
        return watch.sample(len(tokens) // (BLOCK_SIZE * TOKEN_BYTES))

    return side


def _sha256(parent: bytes, block: bytes, extra: bytes) -> bytes:
    return hashlib.sha256(parent + block + extra).digest()
