"""How a worker asks the others: a Unix stream socket for each, one question a connection."""

from __future__ import annotations

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from router.workers.mailbox import Seat

_WAIT_S = 1.0
"""Who has not answered by then is left out."""
_SIZE_BYTES = 8


@asynccontextmanager
async def answering(seat: Seat, answer: Callable[[bytes], bytes]) -> AsyncIterator[None]:
    """Answer what other workers ask while the context is open."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            with suppress(OSError, EOFError):  # who asks may be killed, or wait no longer
                _send(writer, answer(await _receive(reader)))
                await writer.drain()
        finally:
            writer.close()

    path = _path(seat, seat.index)
    path.unlink(missing_ok=True)  # of a worker that was killed
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


async def ask_others(seat: Seat, question: bytes) -> dict[int, bytes]:
    """Ask all other workers at once; return what those say who answer in time, by worker."""
    answers = await asyncio.gather(*(_ask(_path(seat, each), question) for each in seat.others))
    found = zip(seat.others, answers, strict=True)
    return {worker: answer for worker, answer in found if answer is not None}


async def _ask(path: Path, question: bytes) -> bytes | None:
    with suppress(OSError, EOFError):  # a TimeoutError is an OSError
        async with asyncio.timeout(_WAIT_S):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                _send(writer, question)
                return await _receive(reader)
            finally:
                writer.close()
    return None


def _send(writer: StreamWriter, data: bytes) -> None:
    writer.write(len(data).to_bytes(_SIZE_BYTES))
    writer.write(data)


async def _receive(reader: StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(_SIZE_BYTES))
    return await reader.readexactly(size)


def _path(seat: Seat, worker: int) -> Path:
    return seat.folder / f"{worker}.ask"
