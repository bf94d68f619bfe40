"""``watch``: a node's events, one a line."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from prefix_cache import Identity
from prefix_cache.client import NodeClient
from tests.cli.commands import first_line, run, running
from tests.node.nodes import NodeProcess, node_process

WHO = Identity("m", salt="s")


@pytest.fixture
def node() -> Iterator[NodeProcess]:
    with node_process() as node:
        yield node


def serve(node: NodeProcess, tokens: list[int]) -> None:
    with NodeClient(node.address) as client:
        sequence = client.acquire(WHO, tokens)
        client.commit(sequence.id, len(tokens))
        client.release(sequence.id)


def next_object(watch: subprocess.Popen[str]) -> Any:
    return json.loads(first_line(watch))


def test_each_event_is_a_line_and_ctrl_c_ends_it(node: NodeProcess) -> None:
    serve(node, [7] * 32)
    with (
        running("watch", "--node", node.address, "--tokens") as watch,
        NodeClient(node.address) as client,
    ):
        incarnation = client.info().incarnation
        assert first_line(watch) == f"{incarnation}:1 snapshot_started"
        stored = first_line(watch).split()
        assert stored[:2] == [f"{incarnation}:1", "stored"]
        assert [len(block_hash) for block_hash in stored[2:4]] == [32, 32]
        assert stored[4:] == ["model=m", "kv_dtype=bfloat16", "salt=s", f"tokens={'7,' * 31}7"]
        assert first_line(watch) == f"{incarnation}:1 snapshot_ended"
        client.acquire(WHO, [8] * 64 * 16)
        assert first_line(watch) == f"{incarnation}:2 removed {stored[3]} {stored[2]}"
        watch.send_signal(signal.SIGINT)
        assert watch.wait(30) == 130


def test_with_json_each_event_is_an_object(node: NodeProcess) -> None:
    serve(node, [7] * 16)
    with running("watch", "--node", node.address, "--json") as watch:
        started, stored, ended = (next_object(watch) for _ in range(3))
        serve(node, [7] * 32)
        follower = next_object(watch)
    assert [started["event"], ended["event"]] == ["snapshot_started", "snapshot_ended"]
    assert stored["identity"]["salt"] == "s"
    assert (stored["number"], stored["event"], stored["block_size"]) == (1, "stored", 16)
    assert stored["parent_block_hash"] is None
    assert "tokens" not in stored
    assert follower["parent_block_hash"] == stored["block_hashes"][0]


def test_it_goes_on_from_an_event_and_after_the_node_came_back(node: NodeProcess) -> None:
    for token in range(3):
        serve(node, [token] * 16)
    with NodeClient(node.address) as client:
        incarnation = client.info().incarnation
    position = f"{incarnation}:2"
    with running("watch", "--node", node.address, "--json", "--from", position) as watch:
        event = next_object(watch)
        assert (event["number"], event["event"]) == (3, "stored")
        node.signal(signal.SIGKILL)
        node.wait()
        with node_process(listen=[node.address]):
            event = next_object(watch)
            assert (event["number"], event["event"]) == (0, "snapshot_started")
            assert event["incarnation"] != incarnation


@pytest.mark.parametrize("position", ["17", "1:", "one:2", "-1:2"])
def test_a_position_that_is_none_exits_with_2(position: str) -> None:
    done = run("watch", "--node", "127.0.0.1:1", f"--from={position}")
    assert done.returncode == 2
    assert f"'{position}' is no INCARNATION:NUMBER such as 81234:17" in done.stderr


def test_a_node_that_was_never_there_is_one_line_and_exit_code_1() -> None:
    done = run("watch", "--node", "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: 127.0.0.1:1: ")
    assert len(done.stderr.splitlines()) == 1
