"""The nodes of ``prefix-cache top``, asked one by one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from rich.table import Table

from prefix_cache.cli.top.rates import Reading, as_json
from prefix_cache.cli.top.table import table
from prefix_cache.client import AsyncNodeClient
from prefix_cache.errors import PrefixCacheError

# One node that hangs keeps the others waiting for so long.
_TIMEOUT_S = 5.0


@asynccontextmanager
async def nodes_view(addresses: Sequence[str]) -> AsyncIterator[NodesView]:
    """Look at the nodes at ``addresses`` while the context is open."""
    async with AsyncExitStack() as stack:
        yield NodesView(
            [
                await stack.enter_async_context(AsyncNodeClient(address, timeout_s=_TIMEOUT_S))
                for address in addresses
            ]
        )


class NodesView:
    """The stats of each node, now and before."""

    def __init__(self, nodes: Sequence[AsyncNodeClient]) -> None:
        self._nodes = nodes
        self._now: Sequence[Reading | None] = [None] * len(nodes)
        self._readings: Sequence[tuple[Reading, Reading | None]] = ()

    async def look(self) -> bool:
        """Ask each node for its stats; whether all answered."""
        now = await asyncio.gather(*map(_read, self._nodes))
        self._readings = list(zip(now, self._now, strict=True))
        self._now = now
        return all(reading.stats for reading in now)

    def table(self) -> Table:
        """One row for each node."""
        return table(self._readings)

    def document(self) -> dict[str, Any]:
        """One object for each node."""
        return {"nodes": [as_json(*pair) for pair in self._readings]}


async def _read(node: AsyncNodeClient) -> Reading:
    try:
        stats = await node.stats()
    except PrefixCacheError as error:
        return Reading(node.address, time.monotonic(), error=str(error))
    return Reading(node.address, time.monotonic(), stats)
