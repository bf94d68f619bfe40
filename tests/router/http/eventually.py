"""Waits for what comes true without a signal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

DEADLINE_S = 20.0


async def eventually(
    holds: Callable[[], bool], what: Callable[[], object] = lambda: "it did not come true"
) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, what()
        await asyncio.sleep(0.002)
