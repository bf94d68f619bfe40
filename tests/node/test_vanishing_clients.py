"""Clients that break off: what they held comes back, and the node goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from grpc import aio

from prefix_cache import Identity
from prefix_cache.client import Acquire, AsyncNodeClient, Commit, Committed
from prefix_cache.errors import MessageTooLarge
from prefix_cache.v1 import node_pb2, node_pb2_grpc
from tests.node.nodes import RunningNode, packed, running_node

WHO = Identity("m")


async def test_the_sequences_of_a_cancelled_stream_end(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    """Cancelled with steps under way, again and again."""

    async def engine() -> None:
        async with client.session() as session:
            for step in range(1_000_000):
                await session.step([Acquire(step, WHO, [step] * 20), Commit(step, 20)])

    for delay in (0.0, 0.001, 0.003, 0.01, 0.03):
        task = asyncio.create_task(engine())
        await asyncio.sleep(delay)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while (await client.stats()).live_sequences:
            pass
        running.node.cache.audit()


async def test_the_sequences_of_a_client_that_does_not_read_end_with_it(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    """Cut off while the node waits for room to answer."""
    async with aio.insecure_channel(running.address) as channel:
        stream: Any = node_pb2_grpc.NodeServiceStub(channel).Session()
        acquire = node_pb2.AcquireOperation(prompt=node_pb2.Prompt(tokens=packed(1)))
        failing = [node_pb2.Operation(sequence_id=9, release=node_pb2.ReleaseOperation())] * 1000
        await stream.write(
            node_pb2.SessionRequest(
                open=node_pb2.SessionOpen(), operations=[node_pb2.Operation(acquire=acquire)]
            )
        )

        async def send_without_end() -> None:
            while True:
                await stream.write(node_pb2.SessionRequest(operations=failing))

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(send_without_end(), 0.3)
        while (await client.stats()).live_sequences:
            pass


async def test_a_message_above_the_limit_is_refused_and_the_node_goes_on() -> None:
    async with (
        running_node(max_message_bytes=4096) as running,
        AsyncNodeClient(running.address) as client,
    ):
        assert (await client.info()).max_message_bytes == 4096
        with pytest.raises(MessageTooLarge, match="4096"):
            await client.match(WHO, list(range(1100)))
        async with client.session() as session:
            await session.step([Acquire(1, WHO, list(range(20)))])
            with pytest.raises(MessageTooLarge, match="4096"):
                await session.step([Acquire(2, WHO, list(range(1100)))])
        assert (await client.stats()).live_sequences == 0
        assert (await client.match(WHO, list(range(900)))).num_cached_tokens == 0


async def test_bytes_that_are_no_message_fail_that_call_only(
    running: RunningNode, client: AsyncNodeClient
) -> None:
    garbage = b"\xff" * 100
    async with client.session() as session, aio.insecure_channel(running.address) as channel:
        await session.step([Acquire(1, WHO, list(range(20)))])
        acquire: Any = channel.unary_unary("/prefix_cache.v1.NodeService/Acquire")
        with pytest.raises(aio.AioRpcError):
            await acquire(garbage)
        stream: Any = channel.stream_stream("/prefix_cache.v1.NodeService/Session")()
        await stream.write(garbage)
        with pytest.raises(aio.AioRpcError):
            await stream.read()
        assert await session.step([Commit(1, 15)]) == [Committed(15, None)]
