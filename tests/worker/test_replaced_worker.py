"""A worker whose node another worker has taken over fails at once, says why, and stays so."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.client import NodeClient
from prefix_cache.errors import WorkerReplaced
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker import async_engine
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.node_sessions import node_sessions
from tests.node.nodes import NodeProcess, node_process
from tests.prometheus import values
from tests.testing.engines import until

from .engines import WHO, greedy, request
from .fake_model import LAYOUT, FakeModel, FakeTokenizer
from .served import TEXT, Client, served

MESSAGE = "this worker was replaced: the worker's KV memory is gone, and this session's sequences "


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with node_process(listen=[f"unix://{tmp_path}/node.sock"]) as node:
        yield node


@pytest.fixture
def other(node: NodeProcess) -> Iterator[NodeClient]:
    """Where the other worker opens its session."""
    with NodeClient(node.address) as client:
        yield client


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.levelno == logging.ERROR]


def test_requests_under_way_and_new_ones_fail_without_waiting(
    node: NodeProcess, other: NodeClient, caplog: pytest.LogCaptureFixture
) -> None:
    with NodeClient(node.address) as client:
        sessions = node_sessions(client, WHO, 16)
        engine = Engine(FakeModel(), FakeTokenizer(), sessions, KVPool(LAYOUT, 64), WHO)
        engine.add(request("running", [1] * 20, greedy(9, n=2)))
        engine.step()
        with other.session(worker_epoch=7):
            engine.add(request("waiting", [2] * 20, greedy(9)))
            outputs = engine.step()
            with pytest.raises(WorkerReplaced, match="the worker's epoch is 7 now"):
                engine.add(request("late", [3] * 20, greedy(9)))
            assert engine.step() == []
        assert not engine.has_work
        engine.close()

    ended = [(output.id, output.index, type(output.error)) for output in outputs]
    assert ended == [
        ("running", 0, WorkerReplaced),
        ("running", 1, WorkerReplaced),
        ("waiting", 0, WorkerReplaced),
    ]
    assert str(outputs[0].error).startswith(MESSAGE)
    [logged] = errors(caplog)
    assert logged.startswith("another worker has taken the cache over")


async def health(client: Client) -> tuple[int, Any]:
    async with client.http.get("/health") as answer:
        return answer.status, await answer.json()


async def replaced(client: Client) -> float:
    async with client.http.get("/metrics") as answer:
        return values(await answer.text())["prefix_cache_worker_replaced"]


async def test_probes_learn_of_it_from_a_worker_that_has_no_work(
    node: NodeProcess,
    other: NodeClient,
    shared_data: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(async_engine, "_LOOK_EVERY_S", 0.02)
    async with served(shared_data, node=node.address) as client:
        await client.complete("Once", max_tokens=2)
        assert ((await health(client))[0], await replaced(client)) == (200, 0)
        with other.session(worker_epoch=7):
            await until(lambda: client.engine.is_replaced)
        status, said = await health(client)
        assert status == 503
        assert said["error"]["message"].startswith(MESSAGE)
        assert await replaced(client) == 1
        for _ in range(2):
            status, answer = await client.post(TEXT, prompt="Once")
            assert (status, answer) == (503, said)
    assert len(errors(caplog)) == 1
