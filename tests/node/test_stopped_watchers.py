"""Watchers that stop reading, and nodes that die while they are watched: real processes."""

from __future__ import annotations

import json
import signal
import subprocess
from contextlib import ExitStack
from itertools import count
from typing import Any

from prefix_cache import Identity
from prefix_cache.client import Acquire, Commit, NodeClient, NodeHoldings, Release, SnapshotEnded
from tests.node.nodes import node_process, python
from tests.processes import memory_bytes

WHO = Identity("m")

# Follows a node and says, after every event but those within a snapshot, what the node holds.
_WATCHER = """
import asyncio, hashlib, json, sys
from prefix_cache.client import AsyncNodeClient, NodeHoldings, SnapshotStarted

async def follow():
    holdings, snapshots = NodeHoldings(), 0
    async with AsyncNodeClient(sys.argv[1]) as client:
        async for event in client.follow():
            holdings.apply(event)
            snapshots += isinstance(event.event, SnapshotStarted)
            position = holdings.position
            if position.incarnation:
                hashes = sorted(holdings)
                seen = {
                    "incarnation": position.incarnation, "number": position.number,
                    "snapshots": snapshots, "held": [h.hex() for h in hashes],
                }
                print(json.dumps(seen), flush=True)

asyncio.run(follow())
"""


class Churn:
    """Prompts that nobody has seen before, of as many blocks as the pool has."""

    def __init__(self, client: NodeClient) -> None:
        self._client = client
        self._tokens = count()

    def run(self, prompts: int) -> None:
        """Every one of them evicts the one before."""
        with self._client.session() as session:
            for _ in range(prompts):
                tokens = [next(self._tokens)] * 64 * 16
                session.step([Acquire(1, WHO, tokens), Commit(1, 64 * 16), Release(1)])


def holdings_of(client: NodeClient) -> NodeHoldings:
    """What the node says that it holds."""
    holdings = NodeHoldings()
    for event in client.watch():
        holdings.apply(event)
        if isinstance(event.event, SnapshotEnded):
            break
    return holdings


def seen_by(watcher: subprocess.Popen[str], wanted: NodeHoldings) -> dict[str, Any]:
    """What the watcher says once it has come to where ``wanted`` is."""
    assert watcher.stdout is not None
    position = wanted.position
    for line in watcher.stdout:
        seen: dict[str, Any] = json.loads(line)
        if (seen["incarnation"], seen["number"]) == (position.incarnation, position.number):
            return seen
    raise AssertionError("the watcher ended")


def hexes(holdings: NodeHoldings) -> list[str]:
    return [block_hash.hex() for block_hash in sorted(holdings)]


def test_a_watcher_that_stops_reading_slows_nobody_and_ends_with_what_is_there() -> None:
    """Stopped for longer than the log remembers, it is given a snapshot when it goes on."""
    with (
        node_process(event_log_bytes=200_000) as node,
        NodeClient(node.address) as client,
        python(_WATCHER, node.address) as watcher,
    ):
        churn = Churn(client)
        churn.run(500)
        seen_before = seen_by(watcher, holdings_of(client))

        watcher.send_signal(signal.SIGSTOP)
        churn.run(500)
        before = memory_bytes(node.process.pid)
        churn.run(4_000)  # about 10 MB of events
        assert memory_bytes(node.process.pid) < before + 8_000_000

        watcher.send_signal(signal.SIGCONT)
        there = holdings_of(client)
        seen = seen_by(watcher, there)
        assert seen["held"] == hexes(there)
        assert len(there) == 64
        assert seen["snapshots"] > seen_before["snapshots"]

        churn.run(1)
        there = holdings_of(client)
        assert seen_by(watcher, there)["held"] == hexes(there)


def test_watchers_that_never_read_share_what_they_are_to_be_told() -> None:
    """F112: fifty of them, each with a snapshot of 10,000 blocks and their tokens to come."""
    with (
        node_process(num_blocks=10_000, event_log_bytes=200_000) as node,
        NodeClient(node.address) as client,
    ):
        Churn(client).run(10_000 // 64)
        before = memory_bytes(node.process.pid)
        with ExitStack() as open_clients:
            watches = [
                open_clients.enter_context(NodeClient(node.address)).watch(include_tokens=True)
                for _ in range(50)
            ]
            for watch in watches:
                next(watch)
            assert memory_bytes(node.process.pid) < before + 16_000_000  # one each would be 40 MB


def test_a_watcher_outlives_a_node_that_is_killed_and_comes_back_under_its_address() -> None:
    """F092: nothing of the life before is left, though the node's name and address are the same."""
    with node_process() as node, python(_WATCHER, node.address) as watcher:
        with NodeClient(node.address) as client:
            Churn(client).run(3)
            before = holdings_of(client)
            assert seen_by(watcher, before)["held"] == hexes(before)
        node.signal(signal.SIGKILL)
        node.wait()
        with node_process(listen=[node.address]) as again, NodeClient(again.address) as client:
            there = holdings_of(client)
            assert there.position.incarnation != before.position.incarnation
            assert seen_by(watcher, there)["held"] == []
            Churn(client).run(1)
            there = holdings_of(client)
            assert len(there) == 64
            assert seen_by(watcher, there)["held"] == hexes(there)
