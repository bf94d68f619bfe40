"""KV memory whose content a cache node is told, so that its events feed routers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
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
    Result,
)
from prefix_cache.errors import PrefixCacheError
from prefix_cache.index import Identity
from prefix_cache.testing.memory import OpenSequence, OwnMemory

_TIMEOUT_S = 2.0
_RETRY_INTERVAL_S = 1.0
_ALONE = "the engine goes on alone, its cache node cannot be told anything"

_log = logging.getLogger(__name__)


class ToldMemory:
    """The memory of an engine beside the cache node at ``address``; an async context manager.

    What is cached is what both know: an engine that lost its memory without a word finds less
    than the node claims.  While the node is away, or has no room, the engine goes on alone; only
    those who wait for the node's answer when it falls silent wait for a timeout.
    """

    def __init__(self, own: OwnMemory, address: str) -> None:
        self._own = own
        self._address = address
        self._worker_epoch = secrets.randbits(63) + 1
        self._numbers = itertools.count(1)
        self._session: AsyncSession | None = None
        self._was_tried, self._is_lost = asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Self:
        self._telling = asyncio.create_task(self._keep_session())
        await self._was_tried.wait()  # the node drops what an engine before this one held
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._telling.cancel()
        with suppress(asyncio.CancelledError):
            await self._telling

    @asynccontextmanager
    async def sequence(
        self, identity: Identity, prompt: bytes, answer: bytes
    ) -> AsyncIterator[OpenSequence]:
        """Open a sequence here and at the node, as ``Memory`` says."""
        number = next(self._numbers)
        async with self._own.sequence(identity, prompt, answer) as own:
            try:
                acquired = await self._tell(
                    Acquire(number, identity, prompt), Append(number, answer)
                )
                match acquired:
                    case [AcquiredSequence() as there, Appended()]:
                        yield _ToldSequence(own, self._tell, there)
                    case _:  # it is away or has no room
                        yield own
            finally:
                # Also of what the node was told and nobody waited to hear of.
                await self._tell(Release(number))

    async def _tell(self, *operations: Operation) -> Sequence[Result]:
        """Tell the node; return what it says, nothing while it is away."""
        session = self._session
        if session is None:
            return ()
        try:
            return await session.step(operations)
        except PrefixCacheError as error:
            if self._session is session:
                self._session = None
                self._is_lost.set()
                _log.warning("%s: %s", _ALONE, error)
            return ()

    async def _keep_session(self) -> None:
        """Keep a session with the node; when it is lost or cannot be had, try every now and then.

        Its next life knows nothing, and is told what comes from then on.
        """
        is_alone = False
        while True:
            self._is_lost.clear()
            try:
                async with (
                    AsyncNodeClient(self._address, timeout_s=_TIMEOUT_S) as client,
                    client.session(
                        block_size=self._own.cache.block_size, worker_epoch=self._worker_epoch
                    ) as self._session,
                ):
                    _log.info("the cache node is told what is cached")
                    self._was_tried.set()
                    await self._is_lost.wait()
                    is_alone = True
            except PrefixCacheError as error:
                if not is_alone:
                    _log.warning("%s: %s", _ALONE, error)
                is_alone = True
            finally:
                self._session = None
                self._was_tried.set()
            await asyncio.sleep(_RETRY_INTERVAL_S)


class _ToldSequence:
    """A sequence that the node knows, too."""

    def __init__(
        self,
        own: OpenSequence,
        tell: Callable[[Operation], Awaitable[object]],
        acquired: AcquiredSequence,
    ) -> None:
        self._own = own
        self._tell = tell
        self._number = acquired.id
        self.num_cached_tokens = min(own.num_cached_tokens, acquired.num_cached_tokens)

    async def commit(self, num_tokens: int) -> None:
        await self._own.commit(num_tokens)
        await self._tell(Commit(self._number, num_tokens))
