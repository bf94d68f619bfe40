"""Steps of a session that must not fail."""

from __future__ import annotations

from collections.abc import Sequence

from prefix_cache.client import AsyncSession
from prefix_cache.client.operations import Operation, Result
from prefix_cache.errors import PrefixCacheError


async def carry_out(session: AsyncSession, operations: Sequence[Operation]) -> list[Result]:
    """Carry out a step; raise the error of its first operation that failed."""
    results = await session.step(operations)
    for result in results:
        if isinstance(result, PrefixCacheError):
            raise result
    return results
