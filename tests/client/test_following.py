"""Watching a node: both clients see every change, and a follower outlives streams and nodes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest
from grpc import aio

from prefix_cache import Identity
from prefix_cache.client import (
    AsyncNodeClient,
    NodeClient,
    NodeEvent,
    SnapshotEnded,
    SnapshotStarted,
)
from prefix_cache.errors import InvalidArgument, MessageTooLarge, Unavailable
from prefix_cache.index import BlocksRemoved, BlocksStored, Cleared
from prefix_cache.v1 import node_pb2, node_pb2_grpc
from prefix_cache.wire import event_to_wire
from tests.client.relay import relay
from tests.node.nodes import RunningNode, packed, running_node

WHO = Identity("m", adapter="a", salt="s")


@pytest.fixture(params=["synchronous", "asynchronous"])
def watch(request: pytest.FixtureRequest, running: RunningNode) -> Any:
    """``watch`` of either client, as an asynchronous generator."""
    return _watch_in_threads if request.param == "synchronous" else _watch


async def _watch(address: str, *position: int, **options: Any) -> AsyncIterator[NodeEvent]:
    async with AsyncNodeClient(address) as client:
        async for event in client.watch(*position, **options):
            yield event


async def _watch_in_threads(
    address: str, *position: int, **options: Any
) -> AsyncIterator[NodeEvent]:
    with NodeClient(address) as client:
        events = client.watch(*position, **options)
        while True:
            yield await asyncio.to_thread(next, events)


def serve(running: RunningNode, token: int, num_tokens: int = 16) -> None:
    cache = running.node.cache
    sequence = cache.acquire(WHO, [token] * num_tokens, [(0, 1, b"k")])
    cache.commit(sequence, num_tokens)
    cache.release(sequence)


async def take(events: AsyncIterator[NodeEvent], count: int) -> list[NodeEvent]:
    async with asyncio.timeout(20):
        return [await anext(events) for _ in range(count)]


def kinds(events: list[NodeEvent]) -> list[str]:
    return [f"{event.number} {type(event.event).__name__}" for event in events]


def stored_by(event: NodeEvent) -> BlocksStored:
    assert isinstance(event.event, BlocksStored)
    return event.event


async def test_a_late_watcher_sees_what_is_there_and_then_every_change(
    running: RunningNode, watch: Any
) -> None:
    """F084."""
    serve(running, 1, 40)
    life = running.node.incarnation
    async with aclosing(watch(running.address)) as events:
        started, first, ended = await take(events, 3)
        assert started == NodeEvent(life, 1, SnapshotStarted())
        assert ended == NodeEvent(life, 1, SnapshotEnded())
        assert (first.incarnation, first.number) == (life, 1)
        stored = stored_by(first)
        assert len(stored.block_hashes) == 2
        assert stored.identity == WHO
        assert (stored.block_size, stored.token_ids) == (16, b"")
        assert (stored.parent_block_hash, stored.extra_keys) == (None, ())

        serve(running, 2, 64 * 16)
        removed, filled = await take(events, 2)
        assert removed.event == BlocksRemoved(stored.block_hashes[::-1])
        assert len(stored_by(filled).block_hashes) == 64
        running.node.cache.reset()
        (cleared,) = await take(events, 1)
        assert cleared == NodeEvent(life, 4, Cleared())


async def test_tokens_and_extra_keys_come_if_asked_for(running: RunningNode, watch: Any) -> None:
    serve(running, 1, 32)
    async with aclosing(watch(running.address, include_tokens=True)) as events:
        _, first, _ = await take(events, 3)
        assert stored_by(first).token_ids == packed(*[1] * 32)
        assert [bool(key) for key in stored_by(first).extra_keys] == [True, False]
        serve(running, 2)
        (live,) = await take(events, 1)
        assert stored_by(live).token_ids == packed(*[2] * 16)


async def test_a_watcher_goes_on_from_the_event_it_saw_last(
    running: RunningNode, watch: Any
) -> None:
    for token in range(5):
        serve(running, token)
    async with aclosing(watch(running.address, running.node.incarnation, 3)) as events:
        assert kinds(await take(events, 2)) == ["4 BlocksStored", "5 BlocksStored"]
    async with aclosing(watch(running.address, 12345, 3)) as events:
        assert kinds(await take(events, 1)) == ["5 SnapshotStarted"]


async def test_a_new_incarnation_is_told_with_a_snapshot_of_what_is_left(
    running: RunningNode, watch: Any
) -> None:
    """F091: the worker's memory is gone, whoever held blocks of it."""
    serve(running, 1)
    async with aclosing(watch(running.address)) as events:
        await take(events, 3)
        running.node.lose_claims()
        life = running.node.incarnation
        assert await take(events, 2) == [
            NodeEvent(life, 0, SnapshotStarted()),
            NodeEvent(life, 0, SnapshotEnded()),
        ]
        serve(running, 2)
        (stored,) = await take(events, 1)
        assert (stored.incarnation, stored.number) == (life, 1)


async def test_a_watch_ends_with_unavailable_when_the_node_does(watch: Any) -> None:
    async with running_node() as running:
        events = watch(running.address)
        assert kinds(await take(events, 2)) == ["0 SnapshotStarted", "0 SnapshotEnded"]
        running.node.log.close()
        with pytest.raises(Unavailable):
            await take(events, 1)


async def test_numbers_that_no_message_holds_are_refused(running: RunningNode) -> None:
    with NodeClient(running.address) as client:
        for position in [(-1, 0), (0, 2**64)]:
            with pytest.raises(InvalidArgument):
                client.watch(*position)


async def test_a_watcher_that_goes_away_leaves_nothing_behind(running: RunningNode) -> None:
    """A hundred times, at any point of the stream."""
    serve(running, 1)
    async with AsyncNodeClient(running.address) as client:
        tasks = len(asyncio.all_tasks())
        for count in range(100):
            async with aclosing(client.watch()) as events:
                await take(events, count % 4)
        async with asyncio.timeout(20):
            while len(asyncio.all_tasks()) > tasks or running.node.log._snapshots:
                await client.stats()


async def test_a_follower_goes_on_where_a_stream_broke_off(running: RunningNode) -> None:
    """Cut off again and again; each event comes exactly once, without another snapshot."""
    async with (
        relay(running.address) as network,
        AsyncNodeClient(network.address) as client,
        aclosing(client.follow()) as events,
    ):
        assert kinds(await take(events, 2)) == ["0 SnapshotStarted", "0 SnapshotEnded"]
        for number in range(1, 6):
            network.cut()
            serve(running, number)
            assert kinds(await take(events, 1)) == [f"{number} BlocksStored"]


async def test_a_snapshot_that_broke_off_begins_again(running: RunningNode) -> None:
    """F084: half a snapshot is not taken for a whole one."""
    for token in range(60):
        serve(running, token)
    async with (
        relay(running.address) as network,
        AsyncNodeClient(network.address) as client,
        aclosing(client.follow()) as events,
    ):
        await take(events, 10)
        network.cut()
        seen = kinds(await take(events, 62))
        while seen[-1] != "60 SnapshotEnded":
            seen += kinds(await take(events, 1))
        # What had arrived before the cut may come first.
        assert seen[-62:] == ["60 SnapshotStarted", *["60 BlocksStored"] * 60, "60 SnapshotEnded"]


class Scripted(node_pb2_grpc.NodeServiceServicer):
    """A node whose streams are given, one for each watch; the last one stays open."""

    def __init__(self, *streams: list[NodeEvent]) -> None:
        self._streams = iter(streams)
        self.asked: list[tuple[int, int]] = []

    async def Watch(  # type: ignore[override]  # noqa: N802  (the stubs know generators only)
        self, request: node_pb2.WatchRequest, context: Any
    ) -> None:
        self.asked.append((request.incarnation, request.after))
        for event in next(self._streams):
            await context.write(event_to_wire(event, with_tokens=False))
        await asyncio.Event().wait()


async def test_a_follower_asks_again_for_events_that_were_missed() -> None:
    """F081: of 1, 2 and 3 the second one got lost."""
    one, two, three = (NodeEvent(7, number, Cleared()) for number in (1, 2, 3))
    node = Scripted([one, three], [two, three])  # type: ignore[abstract]
    server = aio.server()
    node_pb2_grpc.add_NodeServiceServicer_to_server(node, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with (
            AsyncNodeClient(f"127.0.0.1:{port}") as client,
            aclosing(client.follow()) as events,
        ):
            assert await take(events, 3) == [one, two, three]
        assert node.asked == [(0, 0), (7, 1)]
    finally:
        await server.stop(None)


async def test_a_follower_survives_an_event_that_no_message_holds(running: RunningNode) -> None:
    """What it says is in the snapshot that follows."""
    huge = BlocksStored((b"h",), None, bytes(65 * 1024 * 1024), 16, (b"",), WHO)
    async with (
        AsyncNodeClient(running.address) as client,
        aclosing(client.follow(include_tokens=True)) as events,
    ):
        await take(events, 2)
        running.node.log.record(huge)
        assert kinds(await take(events, 2)) == ["1 SnapshotStarted", "1 SnapshotEnded"]
        serve(running, 1)
        assert kinds(await take(events, 1)) == ["2 BlocksStored"]


async def test_a_follower_gives_up_on_a_snapshot_that_no_message_holds() -> None:
    """65 blocks of 1 MiB of tokens each."""
    async with (
        running_node(num_blocks=65, block_size=2**18) as running,
        AsyncNodeClient(running.address) as client,
        aclosing(client.follow(include_tokens=True)) as events,
    ):
        await take(events, 2)
        cache = running.node.cache
        sequence = cache.acquire(WHO, bytes(65 * 2**20))
        cache.commit(sequence, 65 * 2**18)
        cache.release(sequence)
        assert kinds(await take(events, 1)) == ["1 SnapshotStarted"]
        with pytest.raises(MessageTooLarge):
            await take(events, 1)
