from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from prefix_cache.client import AsyncNodeClient, NodeClient
from tests.client.threads import InThread
from tests.node.nodes import RunningNode, running_node


@pytest_asyncio.fixture
async def running() -> AsyncIterator[RunningNode]:
    """A node of 64 blocks of 16 tokens."""
    async with running_node() as running:
        yield running


@pytest_asyncio.fixture(params=["synchronous", "asynchronous"])
async def client(request: Any, running: RunningNode) -> AsyncIterator[Any]:
    """Either client of that node, behind the asynchronous interface."""
    address = running.address
    synchronous = request.param == "synchronous"
    client: Any = InThread(NodeClient(address)) if synchronous else AsyncNodeClient(address)
    async with client:
        yield client
