"""The benchmarks by name."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from prefix_cache.cli.bench.harness import Case, Row, measure
from tests.bench.conversation import conversation_cases
from tests.bench.decode import decode_cases, hash_cases
from tests.bench.host_tier import host_tier_cases
from tests.bench.loop_blocking import loop_cases
from tests.bench.memory import memory_cases
from tests.bench.node import node_cases
from tests.bench.node_conversation import node_conversation_cases
from tests.bench.pick import pick_cases
from tests.bench.proxy import proxy_cases
from tests.bench.replay import replay_cases
from tests.bench.router_memory import router_memory_cases
from tests.bench.scale import Scale
from tests.bench.turns import aligned_cases, form_cases, turn_cases

GROUPS: dict[str, Callable[[Scale], AsyncGenerator[Case]]] = {
    "hash": hash_cases,
    "turns": turn_cases,
    "aligned": aligned_cases,
    "forms": form_cases,
    "host-tier": host_tier_cases,
    "decode": decode_cases,
    "conversation": conversation_cases,
    "node": node_cases,
    "node-conversation": node_conversation_cases,
    "loop": loop_cases,
    "memory": memory_cases,
    "pick": pick_cases,
    "router-memory": router_memory_cases,
    "replay": replay_cases,
    "proxy": proxy_cases,
}


async def measure_group(name: str, scale: Scale, rounds: int) -> list[Row]:
    """Measure every case of a group."""
    async with aclosing(GROUPS[name](scale)) as cases:
        return [row async for case in cases for row in await measure(case, rounds)]
