"""F102: a stream between node and client, routers included, outlives the silence of a busy node."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc import aio

from prefix_cache.client import (
    Acquire,
    AcquiredSequence,
    AsyncNodeClient,
    AsyncRouterClient,
    Commit,
    Committed,
    NodeClient,
    RouterClient,
    connection,
)
from prefix_cache.errors import Unavailable
from prefix_cache.index import Identity
from prefix_cache.index.events import BlocksStored
from tests.node.nodes import NodeProcess, python, running_node

# The times after which a peer is taken for gone, in a thirtieth, and 45 s of silence with them.
SCALE = 30
SILENCE_S = 45 / SCALE
_TIMES = {
    "grpc.keepalive_time_ms": 30_000 // SCALE,
    "grpc.http2.ping_timeout_ms": 60_000 // SCALE,
    "grpc.http2.min_ping_interval_without_data_ms": 5_000 // SCALE,
}
_RUN_HASTY_NODE = """
import json, sys
from prefix_cache import serving
from prefix_cache.node import NodeConfig, run_node
serving._OPTIONS = [*(dict(serving._OPTIONS) | json.loads(sys.argv[1])).items()]
config = NodeConfig(num_blocks=64, listen=["127.0.0.1:0"])
run_node(config, lambda addresses: print(*addresses, flush=True))
"""
# Other times that end connections: nobody sets them.
_OTHERS = (
    "grpc.keepalive_timeout_ms",
    "grpc.max_connection_idle_ms",
    "grpc.max_connection_age_ms",
    "grpc.client_idle_timeout_ms",
)

WHO = Identity(model="m")
PROMPT = list(range(32))


@contextmanager
def hasty_node() -> Iterator[NodeProcess]:
    with python(_RUN_HASTY_NODE, json.dumps(_TIMES)) as process:
        assert process.stdout is not None
        yield NodeProcess(process, process.stdout.readline().split()[0])


def hasty_client(
    monkeypatch: pytest.MonkeyPatch, node: NodeProcess, **times: int
) -> AsyncNodeClient:
    """A client with such times, too, or with other ``times``."""
    options = dict(connection._OPTIONS) | _TIMES
    options |= {f"grpc.http2.{name}": time for name, time in times.items()}
    monkeypatch.setattr(connection, "_OPTIONS", [*options.items()])
    return AsyncNodeClient(node.address)


async def freeze(node: NodeProcess) -> None:
    node.signal(signal.SIGSTOP)
    await asyncio.sleep(SILENCE_S)
    node.signal(signal.SIGCONT)


async def play(
    client: AsyncNodeClient, silence: Callable[[], Awaitable[None]]
) -> tuple[Committed, int]:
    """One session and one watch with a silence in them.

    Returns what a step after it committed, and how many blocks the next event of the watch had.
    """
    async with client.session() as session:
        [acquired] = await session.step([Acquire(1, WHO, PROMPT)])
        assert isinstance(acquired, AcquiredSequence)
        events = client.watch()
        started = await anext(events)
        await silence()
        # What is in a sequence dies with its stream: had that been opened anew, there were none.
        [committed] = await session.step([Commit(1, len(PROMPT))])
        assert isinstance(committed, Committed), committed
        async for event in events:
            if isinstance(event.event, BlocksStored):
                assert event.incarnation == started.incarnation
                await events.aclose()
                return committed, len(event.event.block_hashes)
    raise AssertionError("the watch ended")


async def test_a_session_and_a_watch_that_are_silent_for_long_go_on() -> None:
    """For much longer than a call may take: that bound is not the stream's."""
    async with running_node() as running:
        client = AsyncNodeClient(running.address, timeout_s=0.5)
        async with client:
            committed, blocks = await play(client, lambda: asyncio.sleep(SILENCE_S))
        assert (committed.num_committed_tokens, blocks) == (32, 2)


async def test_a_node_that_is_frozen_for_45_s_keeps_its_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hasty_node() as node:
        async with hasty_client(monkeypatch, node) as client:
            committed, blocks = await play(client, lambda: freeze(node))
            assert (committed.num_committed_tokens, blocks) == (32, 2)
            assert (await client.stats()).query_tokens == 32, "something was asked again"


async def test_with_less_patience_it_would_lose_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is these times that keep the streams above."""
    with hasty_node() as node:
        async with hasty_client(monkeypatch, node, ping_timeout_ms=200) as client:
            with pytest.raises(Unavailable):
                await play(client, lambda: freeze(node))


class Options:
    """What channels and servers are made with."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_servers: list[dict[str, int]] = []
        self.of_channels: list[dict[str, int]] = []
        for module, name, seen in (
            (aio, "server", self.of_servers),
            (aio, "insecure_channel", self.of_channels),
            (grpc, "insecure_channel", self.of_channels),
        ):
            monkeypatch.setattr(module, name, self._seeing(getattr(module, name), seen))

    def _seeing(self, make: Callable[..., Any], seen: list[dict[str, int]]) -> Callable[..., Any]:
        def made(*arguments: Any, options: Sequence[tuple[str, int]], **others: Any) -> Any:
            seen.append(dict(options))
            return make(*arguments, options=options, **others)

        return made


async def test_every_peer_may_be_frozen_for_longer_than_45_s(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = Options(monkeypatch)
    async with running_node() as running:
        for synchronous in (NodeClient, RouterClient):
            synchronous(running.address).close()
        for asynchronous in (AsyncNodeClient, AsyncRouterClient):
            await asynchronous(running.address).close()
    assert len(options.of_channels) == 4
    [of_server] = options.of_servers
    for made_with in (of_server, *options.of_channels):
        assert made_with["grpc.keepalive_time_ms"] == 30_000
        assert made_with["grpc.http2.ping_timeout_ms"] == 60_000
        assert not set(made_with) & set(_OTHERS)
    # And no client of ours pings more often than a server of ours will have.
    assert of_server["grpc.http2.min_ping_interval_without_data_ms"] == 5_000
