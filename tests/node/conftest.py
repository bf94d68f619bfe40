from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from grpc import aio

from prefix_cache.client import AsyncNodeClient
from prefix_cache.v1 import node_pb2_grpc
from tests.node.nodes import RunningNode, running_node


@pytest_asyncio.fixture
async def running() -> AsyncIterator[RunningNode]:
    """A node of 64 blocks of 16 tokens."""
    async with running_node() as running:
        yield running


@pytest_asyncio.fixture
async def stub(running: RunningNode) -> AsyncIterator[node_pb2_grpc.NodeServiceAsyncStub]:
    """The bare wire to that node."""
    async with aio.insecure_channel(running.address) as channel:
        yield node_pb2_grpc.NodeServiceStub(channel)


@pytest_asyncio.fixture
async def client(running: RunningNode) -> AsyncIterator[AsyncNodeClient]:
    """A client of that node."""
    async with AsyncNodeClient(running.address) as client:
        yield client
