"""Runs the workers of a router: starts them, starts again who dies, ends them."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from prefix_cache.errors import PrefixCacheError, Unavailable
from prefix_cache.listening import cannot_listen, host_and_port
from router.config import RouterConfig
from router.config_file import ConfigFile
from router.workers.mailbox import Seat

Work = Callable[[RouterConfig, "ConfigFile | None", Seat, Callable[[list[str]], None]], None]
"""Runs one worker until SIGTERM; it tells the addresses once it listens."""

_FIRST_BACKOFF_S = 0.1
_LAST_BACKOFF_S = 10.0

_log = logging.getLogger(__name__)


def run_workers(
    config: RouterConfig,
    file: ConfigFile | None,
    work: Work,
    on_ready: Callable[[list[str]], None],
) -> None:
    """Run ``work`` in ``config.workers`` processes, until SIGTERM or SIGINT has ended them.

    They share the port of ``config.http``; only the first listens at ``config.listen``.
    ``on_ready`` gets the addresses once all are ready.  Who dies is started again.  Raises
    CannotListen, and what else keeps one from starting.
    """
    with _reserved(config.http) as http, tempfile.TemporaryDirectory() as folder:
        workers = []
        for index in range(config.workers):
            listen = () if index else config.listen
            own = replace(config, http=http, listen=listen)
            # Read again, it must say the same.
            own_file = file and replace(file, given={**file.given, "http": http, "listen": listen})
            seat = Seat(index, config.workers, Path(folder))
            workers.append(_Worker(work, own, own_file, seat))
        asyncio.run(_Supervisor(workers).run(on_ready))


class _Worker:
    """One process after the other at one seat."""

    def __init__(
        self, work: Work, config: RouterConfig, file: ConfigFile | None, seat: Seat
    ) -> None:
        self.seat = seat
        self.is_ready = False
        """Whether its process listens, and takes note of signals."""
        self._arguments = (work, config, file, seat, logging.getLogger().level)

    def start(self) -> None:
        """Start a process."""
        self.is_ready = False
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=_work, args=(theirs, *self._arguments), name=f"worker {self.seat.index}"
        )
        self._process.start()
        theirs.close()

    async def ready(self) -> list[str]:
        """Wait until it listens; return where.  Raises what keeps it from that."""
        await _readable(self._connection.fileno())
        try:
            told: list[str] | PrefixCacheError = self._connection.recv()
        except EOFError:
            raise Unavailable(f"worker {self.seat.index} ended before it was ready") from None
        if isinstance(told, PrefixCacheError):
            raise told
        self.is_ready = True
        return told

    async def ended(self) -> int | None:
        """Wait until it has ended; return its exit code."""
        await _readable(self._process.sentinel)
        self._process.join()
        self._connection.close()
        return self._process.exitcode

    def signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        pid = self._process.pid
        if self._process.exitcode is None and pid is not None:
            os.kill(pid, number)


class _Supervisor:
    def __init__(self, workers: list[_Worker]) -> None:
        self._workers = workers
        self._stopping = asyncio.Event()

    async def run(self, on_ready: Callable[[list[str]], None]) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._hang_up)
        for worker in self._workers:
            worker.start()
        try:
            addresses = await self._all_ready()
            if not self._stopping.is_set():
                on_ready(addresses)
        except BaseException:
            self._stop()
            raise
        finally:
            await asyncio.gather(*map(self._keep_running, self._workers))

    async def _all_ready(self) -> list[str]:
        """Wait until no worker is starting any more; return where the first one listens."""
        told = await asyncio.gather(
            *(worker.ready() for worker in self._workers), return_exceptions=True
        )
        for each in told:
            if isinstance(each, BaseException) and not self._stopping.is_set():
                raise each
        return next((each for each in told if isinstance(each, list)), [])

    async def _keep_running(self, worker: _Worker) -> None:
        backoff_s = _FIRST_BACKOFF_S
        loop = asyncio.get_running_loop()
        while True:
            started_at = loop.time()
            exit_code = await worker.ended()
            if self._stopping.is_set():
                return
            if loop.time() - started_at > _LAST_BACKOFF_S:
                backoff_s = _FIRST_BACKOFF_S
            _log.error(
                "worker %d ended with exit code %s, it is started again in %g s",
                *(worker.seat.index, exit_code, backoff_s),
            )
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff_s):
                    await self._stopping.wait()
                return
            backoff_s = min(2 * backoff_s, _LAST_BACKOFF_S)
            worker.start()
            try:
                await worker.ready()
            except PrefixCacheError as error:
                _log.error("worker %d cannot start: %s", worker.seat.index, error)

    def _stop(self) -> None:
        self._stopping.set()
        for worker in self._workers:
            worker.signal(signal.SIGTERM)

    def _hang_up(self) -> None:
        for worker in self._workers:
            if worker.is_ready:  # others would die of it, and look at the file anyway
                worker.signal(signal.SIGHUP)


def _work(
    parent: Connection,
    work: Work,
    config: RouterConfig,
    file: ConfigFile | None,
    seat: Seat,
    log_level: int,
) -> None:
    """Be a worker: the main function of its process."""
    os.setpgrp()  # Ctrl-C is for the parent alone, which tells its workers
    logging.basicConfig(
        format=f"%(asctime)s %(levelname)s worker {seat.index}: %(message)s", level=log_level
    )

    def on_ready(addresses: list[str]) -> None:
        parent.send(addresses)
        # It says nothing more: it can be read once it has ended.
        asyncio.get_running_loop().add_reader(parent.fileno(), parent_ended)

    def parent_ended() -> None:
        asyncio.get_running_loop().remove_reader(parent.fileno())
        signal.raise_signal(signal.SIGTERM)

    try:
        work(config, file, seat, on_ready)
    except PrefixCacheError as error:
        with suppress(OSError):
            parent.send(error)


async def _readable(descriptor: int) -> None:
    """Wait until something can be read there, or has ended."""
    loop = asyncio.get_running_loop()
    is_readable = asyncio.Event()
    loop.add_reader(descriptor, is_readable.set)
    try:
        await is_readable.wait()
    finally:
        loop.remove_reader(descriptor)


@contextmanager
def _reserved(address: str) -> Iterator[str]:
    """Keep the port of ``address`` for the workers; the value has the number instead of 0.

    Raises CannotListen when others listen there, even where they would share.
    """
    host, port = host_and_port(address)
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    with socket.socket(family) as alone, socket.socket(family) as shared:
        try:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind((host.strip("[]"), port))
            port = alone.getsockname()[1]
            alone.close()
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            shared.bind((host.strip("[]"), port))
        except OSError as error:
            raise cannot_listen(address, error.strerror or str(error)) from None
        yield f"{host}:{port}"
