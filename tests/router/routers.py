"""A router over real nodes, and turns played through both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from prefix_cache.client import (
    AsyncNodeClient,
    AsyncRouterClient,
    NodeState,
    NodeStatus,
    Outcome,
    Route,
)
from prefix_cache.errors import Draining, Unavailable
from prefix_cache.index import Identity
from router.app import running
from router.config import NodeSpec, PoolConfig, RouterConfig

DEADLINE_S = 20.0


@asynccontextmanager
async def running_router(
    nodes: Mapping[str, str], policy: str = "sticky", **settings: Any
) -> AsyncIterator[str]:
    """A router in this event loop that probes eagerly; the value is its address."""
    pool = PoolConfig(nodes=tuple(NodeSpec(*node) for node in nodes.items()), policy=policy)
    config = RouterConfig(
        pools=(pool,), listen=("127.0.0.1:0",), **{"probe_interval_s": 0.05, **settings}
    )
    async with running(config) as (address,):
        yield address


async def node_status(router: AsyncRouterClient, name: str) -> NodeStatus:
    _, nodes = await router.list_nodes()
    return next(node for node in nodes if node.name == name)


async def wait_for_state(router: AsyncRouterClient, name: str, state: NodeState) -> NodeStatus:
    """Poll until the router sees the node so; fail when it does not in time."""
    deadline = time.monotonic() + DEADLINE_S
    while (node := await node_status(router, name)).state is not state:
        assert time.monotonic() < deadline, f"{name} is {node.state.name}, not {state.name}"
        await asyncio.sleep(0.01)
    return node


@dataclass(frozen=True)
class Played:
    """A served turn: its last route, what was cached, and the nodes that failed it before."""

    route: Route
    num_cached_tokens: int
    tried: tuple[str, ...]


class Player:
    """Plays turns: route, the work at the node, report; elsewhere when the node cannot."""

    def __init__(
        self, router: AsyncRouterClient, on_served: Callable[[int], None] = lambda count: None
    ) -> None:
        self._router = router
        self._on_served = on_served
        self._served = 0
        self._reported_failed: set[str] = set()

    async def play(self, conversation: str, num_tokens: int) -> Played:
        """A turn whose prompt are the first tokens of the conversation; committed whole."""
        tried: tuple[str, ...] = ()
        while True:
            left_alone = set(self._reported_failed)
            route = await self._router.route(conversation, num_tokens, exclude=tried)
            assert route.node not in left_alone, "a failed node was tried on a user"
            try:
                cached = await self._work(route.address, conversation, num_tokens)
            except Draining:
                await self._router.report(route.route_id, Outcome.NOT_SERVED)
            except Unavailable:
                await self._router.report(route.route_id, Outcome.NODE_FAILED)
                self._reported_failed.add(route.node)
            else:
                await self._router.report(
                    route.route_id, Outcome.OK, cached_tokens=cached, committed_tokens=num_tokens
                )
                self._served += 1
                self._on_served(self._served)
                return Played(route, cached, tried)
            tried += (route.node,)

    async def _work(self, address: str, conversation: str, num_tokens: int) -> int:
        # Nothing is shared between conversations: what is cached is the conversation's own.
        who = Identity(model="m", salt=conversation)
        async with AsyncNodeClient(address) as node:
            sequence = await node.acquire(who, list(range(num_tokens)))
            await node.commit(sequence.id, num_tokens)
            await node.release(sequence.id)
        return sequence.num_cached_tokens
