"""Runs asynchronous work that cleans up after itself when the user stops it."""

from __future__ import annotations

import signal
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_stoppable(work: Coroutine[Any, Any, Result]) -> Result:
    """Run ``work``; the first signal cancels it, and later ones do not disturb its clean-up.

    Exits with 128 + the number of the signal, as shells expect, once the work has cleaned up.
    """
    import asyncio

    try:
        return asyncio.run(_run(work))
    except _Stopped as stopped:
        sys.exit(128 + stopped.signal)


class _Stopped(Exception):
    def __init__(self, signal: int) -> None:
        self.signal = signal


async def _run(work: Coroutine[Any, Any, Result]) -> Result:
    import asyncio

    task = asyncio.ensure_future(work)
    received: list[int] = []

    def stop(number: int) -> None:
        if not received:
            task.cancel()
        received.append(number)

    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if not received:  # the loop is closing for another reason
            raise
        raise _Stopped(received[0]) from None
