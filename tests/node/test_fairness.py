"""Long steps and long goodbyes let others have their turn in between."""

from __future__ import annotations

import asyncio

import pytest

from prefix_cache.node import Node, NodeConfig
from prefix_cache.node import session as session_module
from prefix_cache.node.session import Session
from prefix_cache.v1 import node_pb2
from tests.node.nodes import packed


def acquire(number: int) -> node_pb2.Operation:
    prompt = node_pb2.Prompt(tokens=packed(number))
    return node_pb2.Operation(sequence_id=number, acquire=node_pb2.AcquireOperation(prompt=prompt))


async def opened(node: Node, num_sequences: int) -> Session:
    session = Session(node, on_lost=lambda: None)
    operations = map(acquire, range(num_sequences))
    await session.answer(
        node_pb2.SessionRequest(open=node_pb2.SessionOpen(), operations=operations)
    )
    return session


async def test_the_operations_of_a_long_step_are_carried_out_in_order_with_pauses_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each slice of time is over at once here, so there is a pause before each operation."""
    monkeypatch.setattr(session_module, "_SLICE_S", 0.0)
    node = Node(NodeConfig(num_blocks=64))
    answering = asyncio.create_task(opened(node, 10))
    seen = []
    while not answering.done():
        await asyncio.sleep(0)
        seen.append(node.cache.stats().live_sequences)
    assert seen == [*range(11)]
    await (await answering).aclose()
    assert node.cache.stats().live_sequences == 0


async def test_a_session_of_many_sequences_ends_a_hundred_at_a_time() -> None:
    node = Node(NodeConfig(num_blocks=1_000))
    session = await opened(node, 1_000)
    closing = asyncio.create_task(session.aclose())
    left = []
    while not closing.done():
        await asyncio.sleep(0)
        left.append(node.cache.stats().live_sequences)
    assert left == [*range(900, -1, -100)]


async def test_an_end_that_is_cut_short_releases_all_the_same() -> None:
    node = Node(NodeConfig(num_blocks=1_000))
    session = await opened(node, 1_000)
    closing = asyncio.create_task(session.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert node.cache.stats().free == 1_000
    assert not node.on_claims_lost


async def test_a_worker_that_comes_back_during_a_long_end_finds_nothing() -> None:
    node = Node(NodeConfig(num_blocks=1_000))
    node.meet_worker(1)
    session = await opened(node, 1_000)
    closing = asyncio.create_task(session.aclose())
    await asyncio.sleep(0)
    node.meet_worker(2)
    assert node.cache.stats().free == 1_000
    await closing
    node.cache.audit()
