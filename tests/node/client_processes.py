"""Clients as processes of their own, beside a node in this event loop that can be audited."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.node.nodes import DEADLINE_S

# What every client begins with.
_PRELUDE = """
import sys
from prefix_cache import Identity, errors
from prefix_cache.client import *
WHO = Identity("m")
def say(*words):
    print(*words, flush=True)
"""


@dataclass(frozen=True)
class ClientProcess:
    process: asyncio.subprocess.Process

    async def line(self) -> str:
        """The next line that the client prints."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), DEADLINE_S)
        return line.decode().rstrip()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


@asynccontextmanager
async def client_process(code: str, address: str) -> AsyncIterator[ClientProcess]:
    """A client that runs ``code``, with the address in ``sys.argv[1]``; killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PRELUDE + code, address), stdout=asyncio.subprocess.PIPE
    )
    try:
        yield ClientProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def eventually(condition: Callable[[], bool]) -> None:
    """Poll until it holds, and let the node work meanwhile; fail when it does not in time."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  (nobody tells when)
            await asyncio.sleep(0.002)
