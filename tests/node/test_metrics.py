"""Metrics: what is served is what docs/metrics.md says, and counts what happened."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.request import urlopen

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from prefix_cache import Identity
from prefix_cache.client import Acquire, AsyncNodeClient, Commit, Release
from prefix_cache.errors import CannotListen, PoolExhausted
from prefix_cache.metrics_http import serving_metrics
from prefix_cache.node import Node, NodeConfig
from prefix_cache.node.metrics import node_registry
from prefix_cache.v1 import node_pb2
from tests.node.nodes import RunningNode, running_node, status_of
from tests.prometheus import described, documented, values

if TYPE_CHECKING:
    from prefix_cache.v1.node_pb2_grpc import NodeServiceAsyncStub  # exists in the stubs only

WHO = Identity("m")
REQUESTS = "prefix_cache_request_duration_seconds"


@pytest.fixture
async def url(running: RunningNode) -> AsyncIterator[str]:
    async with serving_metrics(node_registry(running.node), "127.0.0.1:0") as url:
        yield url


async def scrape(url: str) -> dict[str, float]:
    return values(await fetch(url))


async def fetch(url: str) -> str:
    return await asyncio.to_thread(lambda: urlopen(url).read().decode())


async def test_what_is_served_is_what_the_document_says(
    running: RunningNode, client: AsyncNodeClient, url: str
) -> None:
    await client.stats()

    assert described(await fetch(url)) == documented("Metrics of a node")


async def test_the_counts_are_those_of_what_happened(client: AsyncNodeClient, url: str) -> None:
    sequence = await client.acquire(WHO, [1] * 40)
    await client.commit(sequence.id, 40)
    async with client.session() as session:
        await session.step([Acquire(1, WHO, [1] * 40), Acquire(2, WHO, [2] * 10)])
        async with aclosing(client.watch()) as events:
            await anext(events)
            now = await scrape(url)
    assert now["prefix_cache_queries_total"] == 90
    assert now["prefix_cache_hits_total"] == 32
    assert now["prefix_cache_blocks{state=free}"] == 59
    assert now["prefix_cache_blocks{state=cached}"] == 2
    assert now["prefix_cache_blocks{state=private}"] == 3
    assert now["prefix_cache_evictable_blocks"] == 0
    assert now["prefix_cache_live_sequences"] == 3
    assert now["prefix_cache_sessions"] == 1
    assert now["prefix_cache_watchers"] == 1
    assert now["prefix_cache_watcher_snapshots_total"] == 1
    assert now[f"{REQUESTS}_count{{method=Acquire}}"] == 1
    assert now["prefix_cache_session_step_duration_seconds_count"] == 2
    assert now["prefix_cache_session_step_operations_sum"] == 2

    await client.release(sequence.id)
    await client.acquire(WHO, [3] * 64 * 16)
    later = await scrape(url)
    while later["prefix_cache_watchers"]:
        later = await scrape(url)
    assert later["prefix_cache_evicted_blocks_total"] == 2
    assert later["prefix_cache_evictable_blocks"] == 0
    assert later["prefix_cache_sessions"] == 0


async def test_what_happens_on_the_host_is_counted() -> None:
    async with (
        running_node(num_blocks=4, block_size=4, host_blocks=3) as running,
        serving_metrics(node_registry(running.node), "127.0.0.1:0") as url,
        AsyncNodeClient(running.address) as client,
    ):
        chat = await client.acquire(WHO, [1] * 16)
        await client.commit(chat.id, 16)
        await client.release(chat.id)
        other = await client.acquire(WHO, [2] * 12)
        now = await scrape(url)
        assert now["prefix_cache_offloaded_blocks_total"] == 3
        assert now["prefix_cache_pending_copies"] == 1
        assert now["prefix_cache_host_blocks{state=cached}"] == 3

        await client.acknowledge(other.copies.copy_id)
        await client.commit(other.id, 12)
        await client.release(other.id)
        again = await client.acquire(WHO, [1] * 16)
        await client.acknowledge(again.copies.copy_id, lost=True)
        now = await scrape(url)
    assert now["prefix_cache_loaded_tokens_total"] == 8
    assert now["prefix_cache_hits_total"] == 12
    assert now["prefix_cache_pending_copies"] == 0
    assert now["prefix_cache_withdrawn_copies_total{reason=lost}"] == 1
    assert now["prefix_cache_withdrawn_copies_total{reason=timeout}"] == 0
    assert now["prefix_cache_withdrawn_copies_total{reason=ended}"] == 0
    assert now["prefix_cache_host_blocks{state=held}"] == 0


async def test_a_step_that_ends_its_session_is_measured_too(
    stub: NodeServiceAsyncStub, url: str
) -> None:
    call = stub.Session(iter([node_pb2.SessionRequest()]))
    assert (await status_of(call.read()))[0] is grpc.StatusCode.INVALID_ARGUMENT
    now = await scrape(url)
    assert now["prefix_cache_session_step_operations_count"] == 1
    assert now["prefix_cache_session_step_duration_seconds_count"] == 1


async def test_a_prompt_refused_ten_times_is_one_query(client: AsyncNodeClient, url: str) -> None:
    """F034."""
    large = await client.acquire(WHO, [1] * 64 * 16)
    for _ in range(10):
        with pytest.raises(PoolExhausted):
            await client.acquire(WHO, [2] * 100)
    await client.release(large.id)
    await client.acquire(WHO, [2] * 100)
    now = await scrape(url)
    assert now["prefix_cache_queries_total"] == 64 * 16 + 100
    assert now["prefix_cache_hits_total"] == 0


async def test_preempted_work_is_counted_as_recomputed_and_never_as_hit(
    client: AsyncNodeClient, url: str
) -> None:
    """F033: unique prompts only, in a pool that holds one of them at a time."""
    async with client.session() as session:
        for resumed in (False, True):
            for token in (1, 2):
                prompt = Acquire(token, WHO, [token] * 1024, resumed=resumed)
                await session.step([prompt, Commit(token, 1024), Release(token)])
    await client.acquire(WHO, [2] * 1024, resumed=True)
    now = await scrape(url)
    assert now["prefix_cache_queries_total"] == 2 * 1024
    assert now["prefix_cache_hits_total"] == 0
    # Of the last one 63 of 64 blocks were still there.
    assert now["prefix_cache_recomputed_tokens_total"] == 2 * 1024 + 16
    assert (await client.stats()).recomputed_tokens == 2 * 1024 + 16


async def test_the_incarnation_is_told(running: RunningNode, url: str) -> None:
    for _ in range(2):
        (info,) = [name for name in await scrape(url) if name.startswith("prefix_cache_node_info")]
        assert f"incarnation={running.node.incarnation}" in info
        running.node.lose_claims()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:port", "::1:9400", "127.0.0.1:70000"])
async def test_an_address_that_is_none_is_refused(address: str) -> None:
    registry = node_registry(Node(NodeConfig()))
    with pytest.raises(CannotListen, match="expected host:port"):
        async with serving_metrics(registry, address):
            pass


async def test_a_port_in_use_is_refused(url: str) -> None:
    address = url.removeprefix("http://").removesuffix("/metrics")
    with pytest.raises(CannotListen, match="cannot listen on"):
        async with serving_metrics(node_registry(Node(NodeConfig())), address):
            pass


async def test_calls_of_other_services_are_not_timed(client: AsyncNodeClient, url: str) -> None:
    health = health_pb2_grpc.HealthStub(client.channel)
    await client.call(health.Check, health_pb2.HealthCheckRequest())
    await client.stats()
    counts = {name for name in await scrape(url) if name.startswith(f"{REQUESTS}_count")}
    assert counts == {f"{REQUESTS}_count{{method=GetStats}}"}
