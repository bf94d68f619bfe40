"""A worker that comes back with empty KV memory: nothing of its earlier life is claimed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from prefix_cache import Identity
from prefix_cache.client import (
    Acknowledge,
    Acquire,
    AsyncNodeClient,
    Commit,
    Release,
    Released,
)
from prefix_cache.errors import UnknownSequence, WorkerRestarted
from prefix_cache.node.worker_epochs import WorkerEpochs
from tests.node.host_tiers import CHAT, one, tiers
from tests.node.nodes import RunningNode

WHO = Identity("m")
PROMPT = list(range(40))


async def test_the_first_epoch_said_is_the_workers(client: AsyncNodeClient) -> None:
    assert (await client.info()).worker_epoch == 0
    before = (await client.info()).incarnation
    async with client.session() as silent, client.session(worker_epoch=7):
        info = await client.info()
        assert await silent.step([]) == []
    assert (info.worker_epoch, info.incarnation) == (7, before)


@pytest.mark.parametrize("is_committed", [True, False])
async def test_the_first_epoch_voids_what_was_claimed_before_any_was_said(
    client: AsyncNodeClient, is_committed: bool
) -> None:
    """A worker that said nothing may have been another one, of another memory."""
    sequence = await client.acquire(WHO, PROMPT)
    if is_committed:
        await client.commit(sequence.id, 40)
        await client.release(sequence.id)
    before = (await client.info()).incarnation
    async with client.session(worker_epoch=7) as session:
        assert session.incarnation != before
        assert (await client.match(WHO, PROMPT)).num_cached_tokens == 0
        assert (await client.stats()).live_sequences == 0


async def test_the_first_epoch_voids_what_was_claimed_on_the_host_alone() -> None:
    """The chat lies on the host whole, and the GPU holds nothing."""
    async with tiers() as running, AsyncNodeClient(running.address) as client:
        async with client.session() as silent:
            await silent.step([Acquire(1, WHO, CHAT), Commit(1, 32), Release(1)])
            other = await one(silent, Acquire(2, WHO, [99] * 32))
            await silent.step([Acknowledge(other.copies.copy_id), Release(2)])
            stats = await client.stats()
            assert (stats.live_sequences, stats.cached, stats.host_cached) == (0, 0, 8)
        before = (await client.info()).incarnation
        async with client.session(worker_epoch=7) as session:
            assert session.incarnation != before
            assert (await client.match(WHO, CHAT)).num_cached_tokens == 0


async def test_sessions_of_one_epoch_share_what_is_cached(client: AsyncNodeClient) -> None:
    async with client.session(worker_epoch=7) as one, client.session(worker_epoch=7) as other:
        await one.step([Acquire(1, WHO, PROMPT), Commit(1, 40), Release(1)])
        (acquired,) = await other.step([Acquire(1, WHO, PROMPT)])
        assert acquired.num_cached_tokens == 32  # type: ignore[union-attr]


async def test_a_new_epoch_voids_all_that_was_claimed(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    """Blocks, leases and the sequences of every session, also of one that said no epoch."""
    async with client.session(worker_epoch=7) as old, client.session() as silent:
        await old.step([Acquire(1, WHO, PROMPT), Commit(1, 40)])
        await silent.step([Acquire(1, WHO, PROMPT)])
        leased = await client.acquire(WHO, PROMPT)
        before = await client.info()

        async with client.session(worker_epoch=8) as new:
            info = await client.info()
            assert info.worker_epoch == 8
            assert info.incarnation == new.incarnation != before.incarnation
            stats = await client.stats()
            assert (stats.live_sequences, stats.cached, stats.free) == (0, 0, 64)
            with pytest.raises(WorkerRestarted, match="the worker's epoch is 8 now"):
                await client.commit(leased.id, 40)
            with pytest.raises(UnknownSequence):
                await client.commit(leased.id + 1, 40)
            running.node.cache.audit()

            for session in (old, silent):
                with pytest.raises(WorkerRestarted, match="the worker's epoch is 8 now"):
                    await session.step([Commit(1, 40)])
            assert (await client.match(WHO, PROMPT)).num_cached_tokens == 0
            (acquired,) = await new.step([Acquire(1, WHO, PROMPT)])
            assert acquired.num_cached_tokens == 0  # type: ignore[union-attr]


async def test_a_session_that_stands_idle_is_told_at_once(
    client: AsyncNodeClient, running: RunningNode
) -> None:
    async with client.session(worker_epoch=7) as old:
        ended: Any = old._reader
        async with client.session(worker_epoch=8):
            await asyncio.wait_for(ended, 20)
        with pytest.raises(WorkerRestarted):
            await old.step([])


async def test_workers_that_come_back_one_after_the_other_end_each_session_once(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    async with client.session(worker_epoch=1) as old:
        await old.step([Acquire(1, WHO, PROMPT)])
        for epoch in (2, 3, 4):
            running.node.meet_worker(epoch)
        with pytest.raises(WorkerRestarted, match="the worker's epoch is 2 now"):
            await old.step([])
    assert running.node.epochs.current == 4


async def test_a_worker_that_was_replaced_cannot_claim_the_node_back(
    client: AsyncNodeClient,
) -> None:
    async with client.session(worker_epoch=7):
        pass
    async with client.session(worker_epoch=8) as new:
        await new.step([Acquire(1, WHO, PROMPT)])
        with pytest.raises(WorkerRestarted, match="epoch 7 has ended, the worker's epoch is 8"):
            async with client.session(worker_epoch=7):
                pass
        assert await new.step([Release(1)]) == [Released()]


async def test_a_step_under_way_is_cut_off_before_it_claims_anything_more(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    """A long step yields between its operations; the new epoch comes in the middle of it."""
    async with client.session(worker_epoch=7) as old:
        operations = [
            operation
            for number in range(5_000)
            for operation in (Acquire(number, WHO, PROMPT), Commit(number, 40), Release(number))
        ]
        step = asyncio.create_task(old.step(operations))
        while not (await client.stats()).query_tokens:
            pass
        async with client.session(worker_epoch=8):
            with pytest.raises(WorkerRestarted):
                await step
            stats = await client.stats()
            assert (stats.live_sequences, stats.cached) == (0, 0)
        assert stats.query_tokens < 5_000 * 40


async def test_reset_keeps_the_incarnation_because_the_memory_is_still_there(
    client: AsyncNodeClient,
) -> None:
    before = await client.info()
    async with client.session(worker_epoch=7) as session:
        await session.step([Acquire(1, WHO, PROMPT), Commit(1, 40), Release(1)])
        assert await client.reset() == 2
        assert (await client.info()).incarnation == before.incarnation
        (acquired,) = await session.step([Acquire(1, WHO, PROMPT)])
        assert acquired.num_cached_tokens == 0  # type: ignore[union-attr]


def test_the_memory_of_ended_epochs_is_bounded() -> None:
    epochs = WorkerEpochs()
    begun = [epochs.begin(epoch) for epoch in range(1, 1003)]
    assert begun == [True] * 1002
    with pytest.raises(WorkerRestarted):
        epochs.begin(2)
    assert epochs.begin(1)
