"""A deadline expires when it was last told to, and leaves the loop's timers alone."""

from __future__ import annotations

import asyncio

from router.http.deadline import Deadline


async def test_it_expires_once() -> None:
    expired = asyncio.Event()
    deadline = Deadline(asyncio.get_running_loop(), expired.set)
    deadline.set(0.01)
    await asyncio.wait_for(expired.wait(), 10)
    expired.clear()
    await asyncio.sleep(0.03)
    assert not expired.is_set()


async def test_it_moves_on_and_back() -> None:
    loop = asyncio.get_running_loop()
    expired: asyncio.Queue[float] = asyncio.Queue()
    deadline = Deadline(loop, lambda: expired.put_nowait(loop.time()))
    started = loop.time()
    deadline.set(0.01)
    deadline.set(0.1)
    assert await asyncio.wait_for(expired.get(), 10) - started >= 0.099
    deadline.set(1000)
    deadline.set(0.01)
    await asyncio.wait_for(expired.get(), 10)
    assert expired.empty()


async def test_cleared_or_closed_it_does_not_expire() -> None:
    expired = asyncio.Event()
    deadline = Deadline(asyncio.get_running_loop(), expired.set)
    deadline.set(0.01)
    deadline.clear()
    await asyncio.sleep(0.03)
    deadline.set(0.01)
    deadline.close()
    await asyncio.sleep(0.03)
    assert not expired.is_set()
