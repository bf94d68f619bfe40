"""A TCP relay whose connections can be cut, as a network does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class Relay:
    """Passes on what comes to ``address``."""

    def __init__(self, target: str) -> None:
        self._host, _, self._port = target.rpartition(":")
        self._writers: set[asyncio.StreamWriter] = set()
        self.address = ""

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one connection until either side ends."""
        target_reader, target_writer = await asyncio.open_connection(self._host, self._port)
        both = {writer, target_writer}
        self._writers |= both
        await asyncio.gather(_pump(reader, target_writer), _pump(target_reader, writer))
        self._writers -= both


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@asynccontextmanager
async def relay(target: str) -> AsyncIterator[Relay]:
    """A relay to ``target`` on a free port."""
    relay = Relay(target)
    server = await asyncio.start_server(relay.connect, "127.0.0.1", 0)
    relay.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield relay
        relay.cut()
