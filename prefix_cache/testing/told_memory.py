"""KV memory whose content a cache node is told, so that its events feed routers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Self

from prefix_cache.client import (
    Acquire,
    AcquiredSequence,
    Append,
    Appended,
    AsyncNodeClient,
    AsyncSession,
    Commit,
    Operation,
    Release,
)
from prefix_cache.errors import PrefixCacheError
from prefix_cache.index import Identity
from prefix_cache.testing.memory import OpenSequence, OwnMemory

_TIMEOUT_S = 2.0

_log = logging.getLogger(__name__)


class ToldMemory:
    """The memory of an engine beside the cache node at ``address``; an async context manager.

    What is cached is what both know: an engine that lost its memory without a word finds less
    than the node claims.  While the node is away, or has no room, the engine goes on alone.
    """

    def __init__(self, own: OwnMemory, address: str) -> None:
        self._own = own
        self._address = address
        self._worker_epoch = secrets.randbits(63) + 1
        self._numbers = itertools.count(1)
        self._opening = asyncio.Lock()
        self._session: AsyncSession | None = None
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._connected()  # the node drops what an engine before this one held
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._open.aclose()

    @asynccontextmanager
    async def sequence(
        self, identity: Identity, prompt: bytes, answer: bytes
    ) -> AsyncIterator[OpenSequence]:
        """Open a sequence here and at the node, as ``Memory`` says."""
        number = next(self._numbers)
        async with self._own.sequence(identity, prompt, answer) as own:
            try:
                yield await self._tell(number, own, identity, prompt, answer) or own
            finally:
                # Also of what the node was told and nobody waited to hear of.
                await self._say(Release(number))

    async def _tell(
        self, number: int, own: OpenSequence, identity: Identity, prompt: bytes, answer: bytes
    ) -> _ToldSequence | None:
        """Open the sequence at the node; None if it is away or has no room."""
        for _ in range(2):  # it may have begun another life since it was last told anything
            session = await self._connected()
            if session is None:
                return None
            try:
                acquired, appended = await session.step(
                    [Acquire(number, identity, prompt), Append(number, answer)]
                )
            except PrefixCacheError as error:
                await self._disconnect(session, error)
                continue
            if isinstance(acquired, AcquiredSequence) and isinstance(appended, Appended):
                return _ToldSequence(own, self._say, acquired)
            return None
        return None

    async def _say(self, operation: Operation) -> None:
        """Tell the node, if it is there, what it can do without."""
        if self._session is not None:
            with suppress(PrefixCacheError):
                await self._session.step([operation])

    async def _connected(self) -> AsyncSession | None:
        async with self._opening:
            if self._session is None:
                try:
                    async with AsyncExitStack() as stack:
                        client = AsyncNodeClient(self._address, timeout_s=_TIMEOUT_S)
                        await stack.enter_async_context(client)
                        session = client.session(
                            block_size=self._own.cache.block_size, worker_epoch=self._worker_epoch
                        )
                        self._session = await stack.enter_async_context(session)
                        self._open = stack.pop_all()
                except PrefixCacheError as error:
                    _log.warning("the cache node cannot be told anything: %s", error)
            return self._session

    async def _disconnect(self, session: AsyncSession, error: PrefixCacheError) -> None:
        async with self._opening:
            if self._session is session:
                _log.warning("the cache node is told again: %s", error)
                self._session = None
                await self._open.aclose()


class _ToldSequence:
    """A sequence that the node knows, too."""

    def __init__(
        self,
        own: OpenSequence,
        say: Callable[[Operation], Awaitable[None]],
        acquired: AcquiredSequence,
    ) -> None:
        self._own = own
        self._say = say
        self._number = acquired.id
        self.num_cached_tokens = min(own.num_cached_tokens, acquired.num_cached_tokens)

    async def commit(self, num_tokens: int) -> None:
        await self._own.commit(num_tokens)
        await self._say(Commit(self._number, num_tokens))
