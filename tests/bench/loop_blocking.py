"""How long small calls wait while a node answers large ones.

``python -m tests.bench.loop_blocking ADDRESS TOKENS`` is the client that sends the large ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator

from prefix_cache.cli.bench.harness import Case, Sample
from prefix_cache.client import Acquire, AsyncNodeClient, Commit, NodeClient, Release
from prefix_cache.replay.fleet import running_node
from tests.bench.prompts import BLOCK_SIZE, WHO, new_prompts, random_tokens
from tests.bench.scale import Scale

_SMALL = random_tokens(4 * BLOCK_SIZE)


async def loop_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Small calls alone, and beside another client's long prompts, none of which is cached."""
    num_blocks = 4 * scale.long_prompt // BLOCK_SIZE
    async with (
        running_node(num_blocks=num_blocks) as node,
        AsyncNodeClient(node.address) as client,
    ):

        async def alone() -> Sample:
            return await _small_calls(client, scale.probes)

        async def crowded() -> Sample:
            async with _large_calls(node.address, scale.long_prompt):
                return await _small_calls(client, scale.probes)

        yield Case(
            f"node, TCP: small call beside prompts of {scale.long_prompt:,} tokens", alone, crowded
        )


async def _small_calls(client: AsyncNodeClient, times: int) -> Sample:
    waits = []
    for _ in range(times):
        start = time.perf_counter()
        await client.match(WHO, _SMALL)
        waits.append((time.perf_counter() - start) * 1e6)
    percentiles = statistics.quantiles(waits, n=100, method="inclusive")
    return {"median": percentiles[49], "p99": percentiles[98]}


@contextlib.asynccontextmanager
async def _large_calls(address: str, num_tokens: int) -> AsyncIterator[None]:
    """A process that plays long prompts, one after another, while the context is open."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.loop_blocking", address, str(num_tokens)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        await process.stdout.readline()  # after its first prompt
        yield
    finally:
        process.kill()
        await process.communicate()


def _play_long_prompts(address: str, num_tokens: int) -> None:
    with NodeClient(address) as client, client.session() as session:
        for prompt in new_prompts(num_tokens):
            session.step([Acquire(1, WHO, prompt), Commit(1, num_tokens), Release(1)])
            print("played", flush=True)


if __name__ == "__main__":
    _play_long_prompts(sys.argv[1], int(sys.argv[2]))
