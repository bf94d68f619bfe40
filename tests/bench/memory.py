"""Bytes per cached block, in a fresh process: ``python -m tests.bench.memory index 1000000``."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterable

from prefix_cache import BlockCache
from prefix_cache.cli.bench.baseline import Cache, NaiveBlockCache, Sequence
from prefix_cache.cli.bench.harness import Case, Sample, Side
from tests.bench.prompts import BLOCK_SIZE, WHO, new_prompts
from tests.bench.scale import Scale

_CHAIN = 512  # blocks


async def memory_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Resident memory from before the cache is made to when all of its blocks are cached."""
    yield Case(
        f"one of {scale.memory_blocks:,} cached blocks",
        _fresh_process("naive", scale.memory_blocks),
        index_memory(scale.memory_blocks),
        unit="bytes",
    )


def index_memory(num_blocks: int) -> Side:
    """Bytes per block of the index."""
    return _fresh_process("index", num_blocks)


def _fresh_process(kind: str, num_blocks: int) -> Side:
    async def side() -> Sample:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.memory", kind, str(num_blocks)),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        return {"": float(output)}

    return side


def _bytes_per_block(kind: str, num_blocks: int) -> float:
    prompts = itertools.islice(new_prompts(_CHAIN * BLOCK_SIZE), num_blocks // _CHAIN)
    before = resident_bytes()
    if kind == "index":
        index = BlockCache(num_blocks, BLOCK_SIZE)
        _fill(index, prompts)
        num_cached = index.stats().cached
    else:
        naive = NaiveBlockCache(num_blocks, BLOCK_SIZE)
        _fill(naive, prompts)
        num_cached = num_blocks // _CHAIN * _CHAIN
    return (resident_bytes() - before) / num_cached


def _fill(cache: Cache[Sequence], prompts: Iterable[bytes]) -> None:
    for prompt in prompts:
        sequence = cache.acquire(WHO, prompt)
        cache.commit(sequence, _CHAIN * BLOCK_SIZE)
        cache.release(sequence)


def resident_bytes() -> int:
    """Resident memory of this process."""
    gc.collect()
    shown = subprocess.run(
        ["ps", "-o", "rss=", "-p", str(os.getpid())], check=True, capture_output=True, text=True
    )
    return int(shown.stdout) * 1024


if __name__ == "__main__":
    print(_bytes_per_block(sys.argv[1], int(sys.argv[2])))
