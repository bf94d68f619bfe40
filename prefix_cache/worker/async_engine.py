"""An engine for an event loop: it computes in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Self, TypeVar

from prefix_cache.errors import PrefixCacheError, Unavailable
from prefix_cache.worker.engine import Engine
from prefix_cache.worker.request import GenerationRequest, RequestOutput

_Result = TypeVar("_Result")
_Arrived = asyncio.Queue[RequestOutput | PrefixCacheError]

# An engine without work looks so often at what has become of its cache.
_LOOK_EVERY_S = 1.0


class AsyncEngine:
    """Steps ``engine`` while there is work; an async context manager.

    Opening raises what opening the engine's session raises.  What a step raises is a fault of
    ours: it fails all requests, and ``run`` raises it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="engine")
        self._changes: list[Callable[[], None]] = []  # for between two steps
        self._changed = asyncio.Event()
        self._arrived: dict[str, _Arrived] = {}

    async def __aenter__(self) -> Self:
        try:
            await self._in_thread(self.engine.open)
        except BaseException:
            self._thread.shutdown()
            raise
        self._stepping = asyncio.create_task(self._step_on())
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._stepping.cancel()
        with suppress(asyncio.CancelledError, Exception):  # `failed` has raised it
            await self._stepping
        await self._in_thread(self.engine.close)
        self._thread.shutdown()

    @property
    def is_well(self) -> bool:
        """Whether it goes on."""
        return not self._stepping.done()

    async def failed(self) -> None:
        """Wait for as long as it is well, then raise what a step raised."""
        await asyncio.shield(self._stepping)

    @asynccontextmanager
    async def answering(
        self, requests: Sequence[GenerationRequest]
    ) -> AsyncIterator[AsyncIterator[RequestOutput]]:
        """Have requests answered while the context is open; leaving it earlier aborts them.

        Its value yields what steps bring, until all answers have ended; these are numbered through
        in the order of the requests.  It raises what ``Engine.add`` raises, what an answer ended
        with, and Unavailable after a failure.
        """
        if not self.is_well:
            raise _failure()
        arrived = _Arrived()
        for request in requests:
            self._arrived[request.id] = arrived
            self._change(partial(self._add, request))
        try:
            yield _outputs(arrived, requests)
        finally:
            for request in requests:
                del self._arrived[request.id]
                self._change(partial(self.engine.abort, request.id))

    async def _step_on(self) -> None:
        try:
            while True:
                changes, self._changes = self._changes, []
                for change in changes:
                    change()
                if self.engine.has_work:
                    for output in await self._in_thread(self.engine.step):
                        if output.id in self._arrived:
                            self._arrived[output.id].put_nowait(output.error or output)
                elif not await self._is_changed_within(_LOOK_EVERY_S):
                    await self._in_thread(self.engine.look)
                self._changed.clear()
        except Exception:
            for arrived in self._arrived.values():
                arrived.put_nowait(_failure())
            raise

    async def _is_changed_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._changed.wait()
        return False

    def _change(self, change: Callable[[], None]) -> None:
        self._changes.append(change)
        self._changed.set()

    def _add(self, request: GenerationRequest) -> None:
        try:
            self.engine.add(request)
        except PrefixCacheError as error:
            if request.id in self._arrived:
                self._arrived[request.id].put_nowait(error)

    async def _in_thread(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


async def _outputs(
    arrived: _Arrived, requests: Sequence[GenerationRequest]
) -> AsyncIterator[RequestOutput]:
    first_index, unfinished = {}, 0
    for request in requests:
        first_index[request.id] = unfinished
        unfinished += request.params.n
    while unfinished:
        output = await arrived.get()
        if isinstance(output, PrefixCacheError):
            raise output
        unfinished -= output.finish_reason is not None
        yield replace(output, index=first_index[output.id] + output.index)


def _failure() -> Unavailable:
    return Unavailable("the engine has failed")
