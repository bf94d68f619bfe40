"""Blocks that are matched, written and shared at the right moment, with many clients at once."""

from __future__ import annotations

import asyncio
import random

import numpy as np

from prefix_cache import Identity
from prefix_cache.client import AsyncNodeClient
from prefix_cache.errors import PoolExhausted
from tests.node.nodes import running_node

WHO = Identity("m")
BLOCK_SIZE = 16


async def test_what_was_never_written_is_never_found(client: AsyncNodeClient) -> None:
    """F065: cancelled before commit leaves nothing; half committed leaves that half."""
    prompt = list(range(64))
    sequence = await client.acquire(WHO, prompt)
    assert (await client.match(WHO, [*prompt, 64])).num_cached_tokens == 0
    await client.release(sequence.id)
    assert (await client.match(WHO, [*prompt, 64])).num_cached_tokens == 0

    sequence = await client.acquire(WHO, prompt)
    await client.commit(sequence.id, 32)
    await client.release(sequence.id)
    assert (await client.match(WHO, [*prompt, 64])).num_cached_tokens == 32


class Worker:
    """KV memory, as if the KV of a token were the token itself."""

    def __init__(self, num_blocks: int) -> None:
        self.memory = np.full((num_blocks, BLOCK_SIZE), -1, dtype=np.int64)

    def write(self, block_table: np.ndarray, tokens: list[int], start: int, stop: int) -> None:
        for position in range(start, stop):
            block, slot = divmod(position, BLOCK_SIZE)
            self.memory[block_table[block], slot] = tokens[position]

    def read(self, block_table: np.ndarray, num_tokens: int) -> list[int]:
        tokens: list[int] = self.memory[block_table].reshape(-1)[:num_tokens].tolist()
        return tokens


async def serve_prompts(
    client: AsyncNodeClient, worker: Worker, rng: random.Random, prompts: int
) -> int:
    """Prefill and decode prompts with common beginnings; return the tokens found cached."""
    found = 0
    while prompts:
        family, fork, length = rng.randrange(3), rng.randrange(4), rng.randrange(1, 160)
        # Every position has a token of its own, so that a block in the wrong place is noticed.
        tokens = [1000 * (family if i < 40 else 10 + fork) + i for i in range(length)]
        try:
            sequence = await client.acquire(WHO, tokens)
        except PoolExhausted:
            await asyncio.sleep(0)
            continue
        prompts -= 1
        table, cached = sequence.block_table, sequence.num_cached_tokens
        found += cached
        assert worker.read(table, cached) == tokens[:cached]
        worker.write(table, tokens, cached, length)
        await asyncio.sleep(0)
        try:
            answer = [rng.randrange(100) for _ in range(rng.randrange(1, 20))]
            appended = await client.append(sequence.id, answer)
        except PoolExhausted:
            pass
        else:
            assert appended.copies == ()
            table = np.append(table, np.array(appended.new_block_ids, dtype=np.int32))
            tokens += answer
            worker.write(table, tokens, length, len(tokens))
        if rng.random() < 0.8:
            await client.commit(sequence.id, rng.randrange(len(tokens) + 1))
        assert worker.read(table, len(tokens)) == tokens
        await client.release(sequence.id)
    return found


async def test_no_block_is_lost_or_overwritten_while_the_pool_churns() -> None:
    """F066: eight clients share one worker; what each found cached or wrote stays intact."""
    async with running_node(num_blocks=24) as running:
        worker = Worker(24)
        clients = [AsyncNodeClient(running.address) for _ in range(8)]
        found = await asyncio.gather(
            *(
                serve_prompts(client, worker, random.Random(seed), 40)
                for seed, client in enumerate(clients)
            )
        )
        for client in clients:
            await client.close()
        stats = running.node.cache.stats()
        assert sum(found) == stats.hit_tokens > 1000
        assert stats.evicted_blocks > 100
        assert (stats.live_sequences, stats.private) == (0, 0)


async def test_equal_prompts_at_the_same_moment_leave_one_copy() -> None:
    """F119: sixteen at once, none finds the others; the extra copies go with their sequences."""
    prompt = [*range(160), 160]
    async with (
        running_node(num_blocks=16 * 11) as running,
        AsyncNodeClient(running.address) as client,
    ):
        sequences = await asyncio.gather(*(client.acquire(WHO, prompt) for _ in range(16)))
        assert [sequence.num_cached_tokens for sequence in sequences] == [0] * 16
        await asyncio.gather(*(client.commit(sequence.id, 160) for sequence in sequences))
        stats = await client.stats()
        assert (stats.cached, stats.private, stats.free) == (10, 166, 0)

        random.Random(1).shuffle(sequences)
        for sequence in sequences:
            assert (await client.match(WHO, prompt)).num_cached_tokens == 160
            await client.release(sequence.id)
            running.node.cache.audit()
        stats = await client.stats()
        assert (stats.cached, stats.evictable, stats.private, stats.free) == (10, 10, 0, 166)

        again = await client.acquire(WHO, prompt)
        assert again.num_cached_tokens == 160
        # Nothing dangles: with this one released, the whole pool can be had.
        await client.release(again.id)
        await client.acquire(WHO, [7] * (16 * 11 * 16))
