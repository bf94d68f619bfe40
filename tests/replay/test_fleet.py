"""Nodes and a router as processes: started together, and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from prefix_cache.client import AsyncNodeClient, AsyncRouterClient, NodeState
from prefix_cache.errors import Unavailable
from prefix_cache.replay.fleet import running_fleet
from tests.node.nodes import wait_until
from tests.processes import children, is_running


async def test_a_fleet_is_ready_when_it_is_there_and_gone_afterwards() -> None:
    async with running_fleet(
        num_nodes=2, num_blocks=100, block_size=32, policy="round_robin"
    ) as fleet:
        async with AsyncRouterClient(fleet.router.address) as router:
            policy, nodes = await router.list_nodes()
        async with AsyncNodeClient(fleet.nodes[0].address) as client:
            info = await client.info()
    assert policy == "round_robin"
    assert [(node.name, node.address, node.state) for node in nodes] == [
        ("n1", fleet.nodes[0].address, NodeState.READY),
        ("n2", fleet.nodes[1].address, NodeState.READY),
    ]
    assert (info.name, info.num_blocks, info.block_size) == ("n1", 100, 32)
    servers = [fleet.router, *fleet.nodes]
    assert [is_running(server.pid) for server in servers] == [False, False, False]


async def test_a_folder_named_router_where_the_user_is_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "router.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    async with running_fleet(num_nodes=1, num_blocks=100, block_size=16, policy="sticky") as fleet:
        assert is_running(fleet.router.pid)


async def test_ctrl_c_in_the_terminal_does_not_reach_the_fleet() -> None:
    """It goes to the process group of the command, which then stops the fleet in order."""
    async with running_fleet(num_nodes=1, num_blocks=100, block_size=16, policy="sticky") as fleet:
        pids = [fleet.router.pid, fleet.nodes[0].pid]
        assert os.getpgrp() not in [os.getpgid(pid) for pid in pids]


async def test_when_the_router_cannot_start_its_words_are_told_and_the_nodes_are_stopped() -> None:
    before = children(os.getpid())
    with pytest.raises(Unavailable) as caught:
        async with running_fleet(num_nodes=2, num_blocks=100, block_size=16, policy="by_mood"):
            raise AssertionError("it started")
    assert str(caught.value).startswith("router ended at once with exit code 2: ")
    assert "'by_mood' is not one of 'sticky'" in str(caught.value)
    assert children(os.getpid()) == before


async def test_when_a_node_cannot_start_all_are_stopped() -> None:
    before = children(os.getpid())
    with pytest.raises(Unavailable, match="n1 ended at once with exit code 2: ") as caught:
        async with running_fleet(num_nodes=2, num_blocks=0, block_size=16, policy="sticky"):
            raise AssertionError("it started")
    assert "0 is not in the range" in str(caught.value)
    assert children(os.getpid()) == before


async def test_cancelled_while_starting_it_leaves_nothing_behind() -> None:
    async def start() -> None:
        async with running_fleet(num_nodes=2, num_blocks=100, block_size=16, policy="sticky"):
            raise AssertionError("it started")

    before = children(os.getpid())
    starting = asyncio.create_task(start())
    await asyncio.to_thread(wait_until, lambda: len(children(os.getpid()) - before) == 2)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert children(os.getpid()) == before


async def test_a_process_that_does_not_end_when_asked_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("prefix_cache.replay.fleet._GRACE_S", 0.2)
    async with running_fleet(num_nodes=1, num_blocks=100, block_size=16, policy="sticky") as fleet:
        os.kill(fleet.nodes[0].pid, signal.SIGSTOP)
    wait_until(lambda: not is_running(fleet.nodes[0].pid))
