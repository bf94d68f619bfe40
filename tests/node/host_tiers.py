"""Nodes with a host tier, and how their blocks get there."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from prefix_cache import Identity
from prefix_cache.client import Acquire, AsyncSession, Commit, Operation, Release
from prefix_cache.index.results import Copies
from tests.node.nodes import RunningNode, running_node

WHO = Identity("m")
CHAT = list(range(32))  # the tokens of 8 blocks


def tiers(**settings: Any) -> AbstractAsyncContextManager[RunningNode]:
    """A node of 8 blocks of 4 tokens and as many slots on the host."""
    return running_node(num_blocks=8, block_size=4, host_blocks=8, **settings)


async def one(session: AsyncSession, operation: Operation) -> Any:
    """The result of a step of one operation."""
    (result,) = await session.step([operation])
    return result


async def evict_the_chat(session: AsyncSession) -> Copies:
    """Cache the chat and let others take all blocks but its first; the copies to be made."""
    await session.step([Acquire(1, WHO, CHAT), Commit(1, 32), Release(1)])
    acquired = await one(session, Acquire(2, WHO, [99] * 28))
    await session.step([Release(2)])
    copies: Copies = acquired.copies
    return copies
