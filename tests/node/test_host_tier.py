"""The host tier of a node: evicted KV is told to the worker to be copied, and found again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from prefix_cache.client import (
    Acknowledge,
    Acknowledged,
    Acquire,
    AcquiredSequence,
    Append,
    Appended,
    AsyncNodeClient,
    AsyncSession,
    Commit,
    Committed,
    Release,
)
from prefix_cache.errors import CopyPending, UnknownCopy
from prefix_cache.index import BlocksRemoved, BlocksStored, ReasonKind
from prefix_cache.index.results import NO_COPIES
from tests.node.host_tiers import CHAT, WHO, evict_the_chat, one, tiers
from tests.node.nodes import RunningNode


@pytest_asyncio.fixture
async def running() -> AsyncIterator[RunningNode]:
    """A node of 8 blocks of 4 tokens and as many slots on the host."""
    async with tiers() as running:
        yield running


@pytest_asyncio.fixture
async def session(client: AsyncNodeClient) -> AsyncIterator[AsyncSession]:
    async with client.session() as session:
        yield session


async def test_what_was_evicted_is_copied_to_the_host_and_found_there(
    session: AsyncSession, client: AsyncNodeClient
) -> None:
    copies = await evict_the_chat(session)
    assert copies.loads == ()
    assert [block for block, _ in copies.offloads] == [7, 6, 5, 4, 3, 2, 1]
    assert sorted(slot for _, slot in copies.offloads) == [0, 1, 2, 3, 4, 5, 6]

    assert await one(session, Acknowledge(copies.copy_id)) == Acknowledged()

    found = await client.match(WHO, [*CHAT, 1])
    assert (found.num_cached_tokens, found.num_host_tokens) == (32, 28)
    assert found.block_ids.tolist() == [0]
    stats = await client.stats()
    assert (stats.host_blocks, stats.host_free, stats.host_cached) == (8, 1, 7)
    assert (stats.offloaded_blocks, stats.rejected_offloads, stats.pending_copies) == (7, 0, 0)


async def test_what_is_on_the_host_is_loaded_and_adopted_by_the_commit(
    session: AsyncSession, client: AsyncNodeClient
) -> None:
    offloads = await evict_the_chat(session)
    await session.step([Acknowledge(offloads.copy_id)])
    slot_of_block = dict(offloads.offloads)

    again = await one(session, Acquire(3, WHO, CHAT))

    assert isinstance(again, AcquiredSequence)
    assert (again.num_cached_tokens, again.num_loaded_tokens, again.num_tokens) == (28, 24, 32)
    table = again.block_table.tolist()
    slots = [slot_of_block[block] for block in range(1, 7)]
    assert again.copies.loads == tuple(zip(slots, table[1:7], strict=True))
    assert type(await one(session, Commit(3, 32))) is CopyPending
    acknowledged, committed = await session.step([Acknowledge(again.copies.copy_id), Commit(3, 32)])
    assert acknowledged == Acknowledged()
    assert isinstance(committed, Committed)
    stats = await client.stats()
    assert (stats.loaded_tokens, stats.hit_tokens, stats.host_cached) == (24, 28, 0)


async def test_who_does_not_want_to_load_computes(session: AsyncSession) -> None:
    offloads = await evict_the_chat(session)
    await session.step([Acknowledge(offloads.copy_id)])
    again = await one(session, Acquire(3, WHO, CHAT, load=False))
    assert (again.num_cached_tokens, again.num_loaded_tokens) == (4, 0)
    assert again.copies == NO_COPIES


async def test_appending_moves_blocks_to_the_host_too(session: AsyncSession) -> None:
    await session.step([Acquire(1, WHO, CHAT[:28]), Commit(1, 28), Release(1)])
    await session.step([Acquire(2, WHO, [99] * 4)])
    appended = await one(session, Append(2, [99]))
    assert isinstance(appended, Appended)
    assert (appended.new_block_ids, appended.offloads) == ((6,), ((6, 0),))
    assert await one(session, Acknowledge(appended.copy_id)) == Acknowledged()


async def test_until_they_are_acknowledged_nothing_is_found_on_the_host(
    session: AsyncSession, client: AsyncNodeClient
) -> None:
    offloads = await evict_the_chat(session)
    found = await client.match(WHO, CHAT)
    assert (found.num_cached_tokens, found.num_host_tokens) == (4, 0)
    again = await one(session, Acquire(3, WHO, CHAT))
    assert (again.num_cached_tokens, again.num_loaded_tokens) == (4, 0)
    assert offloads.copy_id != 0


async def test_lost_copies_are_never_found(session: AsyncSession, client: AsyncNodeClient) -> None:
    offloads = await evict_the_chat(session)
    assert await one(session, Acknowledge(offloads.copy_id, lost=True)) == Acknowledged()
    assert (await client.match(WHO, CHAT)).num_cached_tokens == 4
    assert (await client.stats()).host_free == 8


async def test_a_reset_drops_both_tiers_and_says_how_many_blocks(
    session: AsyncSession, client: AsyncNodeClient
) -> None:
    offloads = await evict_the_chat(session)
    await session.step([Acknowledge(offloads.copy_id)])
    assert await client.reset() == 8
    stats = await client.stats()
    assert (stats.free, stats.host_free) == (8, 8)


async def test_copies_are_acknowledged_once_and_by_whom_they_were_told(
    session: AsyncSession, client: AsyncNodeClient
) -> None:
    offloads = await evict_the_chat(session)
    copy_id = offloads.copy_id
    with pytest.raises(UnknownCopy, match=f"copy {copy_id} is not pending"):
        await client.acknowledge(copy_id)
    async with client.session() as another:
        assert type(await one(another, Acknowledge(copy_id, lost=True))) is UnknownCopy
    assert await one(session, Acknowledge(copy_id)) == Acknowledged()
    assert type(await one(session, Acknowledge(copy_id))) is UnknownCopy
    assert type(await one(session, Acknowledge(0))) is UnknownCopy
    assert (await client.match(WHO, CHAT)).num_host_tokens == 24


async def test_unary_callers_make_copies_too(client: AsyncNodeClient) -> None:
    chat = await client.acquire(WHO, CHAT)
    await client.commit(chat.id, 32)
    await client.release(chat.id)
    other = await client.acquire(WHO, [99] * 24)
    appended = await client.append(other.id, [99])
    assert len(appended.offloads) == 1
    await client.acknowledge(other.copies.copy_id)
    await client.acknowledge(appended.copy_id, lost=True)
    await client.release(other.id)
    assert (await client.match(WHO, CHAT)).num_host_tokens == 0
    recomputed = await client.acquire(WHO, CHAT, load=False)
    assert (recomputed.num_cached_tokens, recomputed.copies) == (4, NO_COPIES)


async def test_the_node_explains_what_is_on_the_host(
    session: AsyncSession, client: AsyncNodeClient
) -> None:
    offloads = await evict_the_chat(session)
    await session.step([Acknowledge(offloads.copy_id)])
    explanation = await client.explain(WHO, [*CHAT, 1])
    assert [(reason.kind, reason.start, reason.end) for reason in explanation.reasons] == [
        (ReasonKind.CACHED, 0, 4),
        (ReasonKind.ON_HOST, 4, 32),
        (ReasonKind.PARTIAL_BLOCK, 32, 33),
    ]


async def test_a_watcher_hears_of_blocks_that_are_gone_from_both_tiers_only(
    session: AsyncSession, client: AsyncNodeClient
) -> None:
    offloads = await evict_the_chat(session)
    await session.step([Acknowledge(offloads.copy_id, lost=True)])
    await session.step([Acquire(3, WHO, [7] * 4), Commit(3, 4)])
    told: list[object] = []
    async for event in client.watch(incarnation=session.incarnation, after=0):
        told.append(event.event)
        if len(told) == 3:
            break
    stored, removed, another = told
    assert isinstance(stored, BlocksStored)
    assert isinstance(removed, BlocksRemoved)
    assert removed.block_hashes == stored.block_hashes[:0:-1]
    assert isinstance(another, BlocksStored)


async def test_a_node_says_how_large_its_host_tier_is(
    session: AsyncSession, client: AsyncNodeClient
) -> None:
    assert ((await client.info()).host_blocks, session.host_blocks) == (8, 8)
