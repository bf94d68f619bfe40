"""Clients killed or frozen in the middle of everything: nothing leaks, the index is in order."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from prefix_cache import Identity
from prefix_cache.client import Acquire, AsyncNodeClient, Commit, Release
from prefix_cache.errors import PoolExhausted
from prefix_cache.index.results import BlockIds
from tests.node.client_processes import client_process, eventually
from tests.node.nodes import DEADLINE_S, RunningNode, running_node

WHO = Identity("m")

# Opens by unary calls, commits half, forks, appends to the fork, and goes on and on.
_CALLER = """
with NodeClient(sys.argv[1]) as client:
    for number in range(1_000_000):
        sequence = client.acquire(WHO, [number % 5] * 100)
        client.commit(sequence.id, 40)
        fork = client.fork(sequence.id)
        client.append(fork, [number])
        if number == 3:
            say("working")
        client.release(sequence.id)
        client.release(fork)
"""

# The same in a session, where a step does it all.
_ENGINE = """
with NodeClient(sys.argv[1]) as client, client.session() as session:
    for number in range(1_000_000):
        session.step([Acquire(1, WHO, [number % 5] * 100), Commit(1, 40), Fork(2, 1)])
        session.step([Append(2, [number])])
        if number == 3:
            say("working")
        session.step([Release(1), Release(2)])
"""

# Has a sequence and a fork open, and goes on with them when it wakes up again.
_SLEEPER = """
import os, signal
with NodeClient(sys.argv[1]) as client:
    sequence = client.acquire(WHO, [1] * 100)
    client.commit(sequence.id, 40)
    fork = client.fork(sequence.id)
    client.append(fork, [1])
    say("open")
    os.kill(os.getpid(), signal.SIGSTOP)
    for call in (
        lambda: client.append(sequence.id, [1]),
        lambda: client.commit(sequence.id, 100),
        lambda: client.commit(fork, 101),
        lambda: client.release(fork),
    ):
        try:
            call()
        except errors.LeaseExpired:
            say("expired")
    say(client.acquire(WHO, [1] * 100).num_cached_tokens)
"""

# As many sequences as fit, dropped without a word.
_HOARDER = """
import signal
with NodeClient(sys.argv[1]) as client, client.session() as session:
    for first in range(0, 10_000, 1_000):
        results = session.step([Acquire(n, WHO, [n] * 8) for n in range(first, first + 1_000)])
        assert all(type(result) is AcquiredSequence for result in results), results
    say("open")
    signal.pause()
"""

# Sends long steps one after the other without waiting for an answer.
_FLOODER = """
import asyncio
async def flood():
    async with AsyncNodeClient(sys.argv[1]) as client, client.session() as session:
        step = [Acquire(1, WHO, [7] * 1_000), Commit(1, 1_000), Release(1)] * 300
        while True:
            steps = [asyncio.create_task(session.step(step)) for _ in range(20)]
            say("flooding")
            await asyncio.gather(*steps)
asyncio.run(flood())
"""


@pytest_asyncio.fixture
async def running() -> AsyncIterator[RunningNode]:
    """A node of 256 blocks of 16 tokens, with leases of a second."""
    async with running_node(num_blocks=256, lease_s=1.0) as running:
        yield running


def nothing_lives(running: RunningNode) -> bool:
    stats = running.node.cache.stats()
    return stats.live_sequences == 0 and stats.private == 0


async def whole_pool(running: RunningNode) -> BlockIds:
    """All blocks at once, as soon as they can be had: a last call may have been on its way."""
    async with AsyncNodeClient(running.address) as client, asyncio.timeout(DEADLINE_S):
        while True:
            with suppress(PoolExhausted):
                return (await client.acquire(WHO, [9] * (256 * 16))).block_table


@pytest.mark.parametrize("moment", range(3))
@pytest.mark.parametrize("code", [_CALLER, _ENGINE], ids=["unary", "session"])
async def test_what_a_killed_client_held_comes_back(
    running: RunningNode, code: str, moment: int
) -> None:
    """F042: wherever it is killed; what is committed stays, and the whole pool can be had."""
    cache = running.node.cache
    async with client_process(code, running.address) as client:
        assert await client.line() == "working"
        await asyncio.sleep(moment * 0.0007)
        client.signal(signal.SIGKILL)
        await eventually(lambda: nothing_lives(running))
    cache.audit()
    assert cache.stats().cached > 0
    assert len(await whole_pool(running)) == 256
    cache.audit()


async def test_a_frozen_client_loses_its_lease_and_is_told_so_when_it_wakes(
    running: RunningNode,
) -> None:
    async with client_process(_SLEEPER, running.address) as client:
        assert await client.line() == "open"
        await eventually(lambda: nothing_lives(running))
        running.node.cache.audit()
        assert running.node.leases_expired == 2
        client.signal(signal.SIGCONT)
        assert [await client.line() for _ in range(5)] == ["expired"] * 4 + ["32"]


async def test_a_frozen_engine_keeps_its_sequences_and_goes_on_when_it_wakes(
    running: RunningNode,
) -> None:
    """Its stream is still there: so it may still write KV."""
    cache = running.node.cache
    async with (
        client_process(_ENGINE, running.address) as engine,
        AsyncNodeClient(running.address) as another,
    ):
        assert await engine.line() == "working"
        engine.signal(signal.SIGSTOP)
        for number in range(50):
            sequence = await another.acquire(WHO, [number] * 50)
            await another.release(sequence.id)
        cache.audit()
        before = cache.stats().query_tokens
        engine.signal(signal.SIGCONT)
        await eventually(lambda: cache.stats().query_tokens > before)
        engine.signal(signal.SIGKILL)
        await eventually(lambda: nothing_lives(running))


async def test_ten_thousand_sequences_of_a_killed_engine_come_back() -> None:
    async with (
        running_node(num_blocks=10_000) as running,
        client_process(_HOARDER, running.address) as client,
    ):
        assert await client.line() == "open"
        assert running.node.cache.stats().live_sequences == 10_000
        client.signal(signal.SIGKILL)
        await eventually(lambda: nothing_lives(running))
        assert running.node.cache.stats().free == 10_000


async def test_a_session_that_floods_does_not_shut_out_the_others(running: RunningNode) -> None:
    cache = running.node.cache
    async with (
        client_process(_FLOODER, running.address) as flooder,
        AsyncNodeClient(running.address) as client,
        client.session() as session,
    ):
        assert await flooder.line() == "flooding"
        await eventually(lambda: cache.stats().query_tokens > 100_000)
        for number in range(30):
            results = await session.step(
                [Acquire(1, WHO, [number] * 50), Commit(1, 50), Release(1)]
            )
            assert results[0].num_tokens == 50  # type: ignore[union-attr]
            await client.match(WHO, [number] * 50)
        before = cache.stats().query_tokens
        await eventually(lambda: cache.stats().query_tokens > before)  # It floods still.
        flooder.signal(signal.SIGKILL)
        await eventually(lambda: nothing_lives(running))
    cache.audit()


async def test_two_thousand_requests_leave_no_block_behind(running: RunningNode) -> None:
    """F043: of 1 to 100 tokens, some committed, some by half, some not, one after another."""
    cache = running.node.cache
    async with AsyncNodeClient(running.address) as client, client.session() as session:
        for number in range(2_000):
            length = number % 100 + 1
            tokens = [number % 7] * length
            await session.step([Acquire(1, WHO, tokens), Commit(1, number % length), Release(1)])
        stats = cache.stats()
        assert (stats.live_sequences, stats.private) == (0, 0)
        assert stats.evictable == stats.cached
        assert await client.reset() == stats.cached
        assert cache.stats().free == 256
