"""F042: copies that are finished late, or never: no block and no slot leaks."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from prefix_cache.client import (
    Acknowledge,
    Acknowledged,
    Acquire,
    AsyncNodeClient,
    AsyncSession,
    Commit,
    Operation,
    Release,
)
from prefix_cache.errors import UnknownCopy
from prefix_cache.index.results import Copies
from tests.node.client_processes import client_process, eventually
from tests.node.host_tiers import CHAT, WHO, evict_the_chat, one, tiers
from tests.node.nodes import RunningNode

# Has copies to the host pending, and copies back.
_WORKER = """
import signal
with NodeClient(sys.argv[1]) as client, client.session() as session:
    session.step([Acquire(1, WHO, list(range(32))), Commit(1, 32), Release(1)])
    (other,) = session.step([Acquire(2, WHO, [99] * 28)])
    session.step([Acknowledge(other.copies.copy_id), Commit(2, 28), Release(2)])
    (again,) = session.step([Acquire(3, WHO, list(range(32)))])
    assert again.copies.offloads and again.copies.loads
    say("copying")
    signal.pause()
"""


@pytest_asyncio.fixture
async def running() -> AsyncIterator[RunningNode]:
    async with tiers() as running:
        yield running


@pytest_asyncio.fixture
async def hasty() -> AsyncIterator[RunningNode]:
    """Waits for copies only a little longer than a busy machine may take to say so."""
    async with tiers(copy_timeout_s=1.0) as running:
        yield running


async def load_the_chat(session: AsyncSession) -> Copies:
    """The copies that bring the chat back to the GPU."""
    offloads = await evict_the_chat(session)
    await session.step([Acknowledge(offloads.copy_id)])
    acquired = await one(session, Acquire(3, WHO, CHAT))
    copies: Copies = acquired.copies
    assert len(copies.loads) == 6
    return copies


def is_at_rest(running: RunningNode) -> bool:
    """Whether every block and slot is free or cached."""
    stats = running.node.cache.stats()
    held_slots = stats.host_blocks - stats.host_free - stats.host_cached
    return (stats.live_sequences, stats.private, held_slots, stats.pending_copies) == (0, 0, 0, 0)


async def test_blocks_are_held_until_the_load_of_a_cancelled_sequence_is_finished(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    async with client.session() as session:
        copies = await load_the_chat(session)
        await session.step([Release(3)])
        stats = await client.stats()
        assert (stats.live_sequences, stats.private, stats.pending_copies) == (0, 6, 1)
        assert await one(session, Acknowledge(copies.copy_id)) == Acknowledged()
        assert is_at_rest(running)
        assert (await client.match(WHO, CHAT)).num_host_tokens == 24


async def test_copies_that_nobody_acknowledges_are_withdrawn(hasty: RunningNode) -> None:
    async with AsyncNodeClient(hasty.address) as client, client.session() as session:
        offloads = await evict_the_chat(session)
        await eventually(lambda: is_at_rest(hasty))
        assert hasty.node.withdrawn_copies == {"lost": 0, "timeout": 1, "ended": 0}
        assert hasty.node.cache.stats().host_free == 8
        assert (await client.match(WHO, CHAT)).num_cached_tokens == 4
        assert type(await one(session, Acknowledge(offloads.copy_id))) is UnknownCopy


async def test_acknowledged_copies_have_no_time_limit_any_more(
    hasty: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with AsyncNodeClient(hasty.address) as client, client.session() as session:
        offloads = await evict_the_chat(session)
        await session.step([Acknowledge(offloads.copy_id)])
        await session.step([Acquire(3, WHO, [98] * 12), Commit(3, 12), Release(3)])
        await session.step([Acquire(4, WHO, CHAT[:5]), Release(4)])
        later = await one(session, Acquire(5, WHO, [97] * 20))
        assert len(later.copies.offloads) == 1
        # The limit of the first has passed when that of the second has.
        await eventually(lambda: hasty.node.withdrawn_copies["timeout"] == 1)
        assert (await client.match(WHO, CHAT)).num_host_tokens == 24
    assert caplog.records == []


async def test_a_load_that_never_ends_frees_its_blocks_in_time(hasty: RunningNode) -> None:
    async with AsyncNodeClient(hasty.address) as client, client.session() as session:
        await load_the_chat(session)
        await session.step([Release(3)])
        await eventually(lambda: is_at_rest(hasty))
        whole_pool = await one(session, Acquire(4, WHO, [5] * 32))
        assert len(whole_pool.block_table) == 8


async def test_a_sequence_whose_load_was_lost_goes_on_and_computes(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    async with client.session() as session:
        copies = await load_the_chat(session)
        await session.step([Acknowledge(copies.copy_id, lost=True), Commit(3, 32), Release(3)])
        assert running.node.withdrawn_copies == {"lost": 1, "timeout": 0, "ended": 0}
        found = await client.match(WHO, [*CHAT, 1])
        assert (found.num_cached_tokens, found.num_host_tokens) == (32, 0)


@pytest.mark.parametrize("prepare", [evict_the_chat, load_the_chat])
async def test_copies_end_with_their_session(
    running: RunningNode, client: AsyncNodeClient, prepare: Any
) -> None:
    async with client.session() as session:
        await prepare(session)
        assert not is_at_rest(running)
    assert is_at_rest(running)
    assert running.node.withdrawn_copies == {"lost": 0, "timeout": 0, "ended": 1}


async def test_copies_end_with_the_memory_of_their_worker(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    async with client.session(worker_epoch=1) as old:
        await old.step([Acquire(1, WHO, CHAT), Commit(1, 32), Release(1)])
        leased = await client.acquire(WHO, [99] * 4)
        await old.step([Acquire(2, WHO, [98] * 4)])
        assert (await client.stats()).pending_copies == 2
        async with client.session(worker_epoch=2):
            assert is_at_rest(running)
            stats = await client.stats()
            assert (stats.free, stats.host_free) == (8, 8)
            with pytest.raises(UnknownCopy):
                await client.acknowledge(leased.copies.copy_id)
    assert running.node.withdrawn_copies == {"lost": 0, "timeout": 0, "ended": 2}


async def test_a_reset_ends_copies_without_a_word(hasty: RunningNode) -> None:
    async with AsyncNodeClient(hasty.address) as client, client.session() as session:
        offloads = await evict_the_chat(session)
        await client.reset()
        stats = await client.stats()
        assert (stats.host_free, stats.pending_copies) == (8, 0)
        assert type(await one(session, Acknowledge(offloads.copy_id))) is UnknownCopy
        await evict_the_chat(session)
        await client.reset()
        await evict_the_chat(session)
        await eventually(lambda: is_at_rest(hasty))
        assert hasty.node.withdrawn_copies["timeout"] == 1


async def test_a_worker_killed_while_it_copies_leaves_nothing_behind(running: RunningNode) -> None:
    async with client_process(_WORKER, running.address) as worker:
        assert await worker.line() == "copying"
        assert not is_at_rest(running)
        worker.signal(signal.SIGKILL)
        await eventually(lambda: is_at_rest(running))
    running.node.cache.audit()
    assert running.node.withdrawn_copies == {"lost": 0, "timeout": 0, "ended": 1}
    async with AsyncNodeClient(running.address) as client:
        assert len((await client.acquire(WHO, [5] * 32)).block_table) == 8


async def test_a_thousand_copies_end_in_any_way_and_none_is_left(running: RunningNode) -> None:
    async with AsyncNodeClient(running.address) as client, client.session() as session:
        for number in range(1_000):
            prompt = [number % 3] * (number % 29 + 1)
            acquired = await one(session, Acquire(1, WHO, prompt))
            copy_id, lost = acquired.copies.copy_id, number % 5 == 0
            word: list[Operation] = [Acknowledge(copy_id, lost=lost)] if copy_id else []
            end: list[Operation] = [Commit(1, number % len(prompt)), Release(1)]
            await session.step([*word, *end] if number % 2 else [*end, *word])
            running.node.cache.audit()
        stats = running.node.cache.stats()
        assert stats.loaded_tokens > 0
    assert is_at_rest(running)
