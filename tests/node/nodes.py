"""Nodes for the tests: in this process, or as processes of their own."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio
from grpc_status import rpc_status

from prefix_cache.client import NodeClient
from prefix_cache.errors import Unavailable
from prefix_cache.node import Node, NodeConfig, node_service
from prefix_cache.serving import serving

DEADLINE_S = 20.0

# What a process node runs; its first line of output are the addresses.
_RUN_NODE = """
import json, sys
from prefix_cache.node import NodeConfig, run_node
run_node(NodeConfig(**json.loads(sys.argv[1])), lambda addresses: print(*addresses, flush=True))
"""


@dataclass(frozen=True)
class RunningNode:
    node: Node
    address: str


@asynccontextmanager
async def running_node(**settings: Any) -> AsyncIterator[RunningNode]:
    """A node of 64 blocks in this event loop.  At the end its index must be in order."""
    node = Node(NodeConfig(**{"num_blocks": 64, "drain_grace_s": 0.0, **settings}))
    async with serving(
        node_service(node),
        ["127.0.0.1:0"],
        max_message_bytes=node.config.max_message_bytes,
        grace_s=node.config.drain_grace_s,
    ) as addresses:
        yield RunningNode(node, addresses[0])
    node.cache.audit()


@dataclass(frozen=True)
class NodeProcess:
    process: subprocess.Popen[str]
    address: str

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Exit code."""
        return self.process.wait(DEADLINE_S)


@contextmanager
def node_process(**settings: Any) -> Iterator[NodeProcess]:
    """A node of 64 blocks as a process of its own, killed at the end."""
    config = {"num_blocks": 64, "listen": ["127.0.0.1:0"], **settings}
    with python(_RUN_NODE, json.dumps(config)) as process:
        assert process.stdout is not None
        yield NodeProcess(process, process.stdout.readline().split()[0])


@contextmanager
def python(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process, killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def answers(client: NodeClient) -> bool:
    """Whether the client has found its node again."""
    try:
        client.info()
    except Unavailable:
        return False
    return True


def wait_until(condition: Callable[[], bool]) -> None:
    """Poll until it holds; fail when it does not in time."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def packed(*numbers: int) -> bytes:
    """Tokens or blocks as they travel."""
    return struct.pack(f"<{len(numbers)}I", *numbers)


async def status_of(call: Awaitable[object]) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """Code, reason and metadata that a call fails with."""
    with pytest.raises(aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)
    assert status is not None, caught.value
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert info.domain == "prefix-cache"
    return caught.value.code(), info.reason, dict(info.metadata)
