"""Starts servers as real processes on free ports, and stops all of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import IO, Self

from prefix_cache.errors import Unavailable

_START_S = 30.0
_LOAD_S = 300.0  # with the weights of a model
_GRACE_S = 5.0


@dataclass(frozen=True)
class Server:
    """One running process and where it listens: the last address is that of HTTP, if it has one."""

    name: str
    addresses: tuple[str, ...]
    pid: int

    @property
    def address(self) -> str:
        """The first address."""
        return self.addresses[0]


@dataclass(frozen=True)
class Fleet:
    """A router and the nodes behind it."""

    router: Server
    nodes: tuple[Server, ...]


@contextlib.asynccontextmanager
async def running_fleet(
    *, num_nodes: int, num_blocks: int, block_size: int, policy: str
) -> AsyncIterator[Fleet]:
    """Run nodes ``n1``, ``n2``, ... and a router with ``policy`` while the context is open.

    Raises Unavailable when a process ends before it listens or takes too long; it says what the
    process printed.  Those that run already are stopped.
    """
    node = ["node", "--num-blocks", str(num_blocks), "--block-size", str(block_size)]
    async with _Processes() as processes:
        for number in range(1, num_nodes + 1):
            await processes.start(f"n{number}", *node, "--name", f"n{number}")
        nodes = [await process.listening() for process in processes.started]
        routes = [f"--node={node.name}={node.address}" for node in nodes]
        await processes.start("router", "router", "--policy", policy, *routes)
        router = await processes.started[-1].listening()
        yield Fleet(router, tuple(nodes))


@contextlib.asynccontextmanager
async def running_node(
    listen: str = "127.0.0.1:0", num_blocks: int = 4096
) -> AsyncIterator[Server]:
    """Run one node while the context is open.  Raises as ``running_fleet`` does."""
    async with _Processes() as processes:
        await processes.start("node", "node", "--num-blocks", str(num_blocks), listen=listen)
        yield await processes.started[0].listening()


@contextlib.asynccontextmanager
async def running_engines(
    *, num_engines: int, policy: str, options: Mapping[str, object]
) -> AsyncIterator[str]:
    """Run test engines with ``options`` and a router before them; the value is the router's URL.

    Raises as ``running_fleet`` does.
    """
    engine = ["engine", *(f"--{name}={value}" for name, value in options.items())]
    async with _Processes() as processes:
        for number in range(1, num_engines + 1):
            await processes.start(f"e{number}", *engine)
        engines = [await process.listening() for process in processes.started]
        routes = [f"--node={engine.name}={engine.address}" for engine in engines]
        http = ["--http", "127.0.0.1:0"]
        await processes.start("router", "router", "--policy", policy, *http, *routes)
        router = await processes.started[-1].listening()
        yield router.addresses[-1]


@contextlib.asynccontextmanager
async def running_workers(
    *, num_workers: int, num_blocks: int, block_size: int, options: Mapping[str, object]
) -> AsyncIterator[str]:
    """Run workers with ``options``, a cache node beside each, and a router before them.

    The value is the router's URL.  Raises as ``running_fleet`` does.
    """
    node = ["node", "--num-blocks", str(num_blocks), "--block-size", str(block_size)]
    worker = ["worker", *(f"--{name}={value}" for name, value in options.items())]
    with tempfile.TemporaryDirectory(prefix="prefix-cache-") as folder:
        async with _Processes() as processes:
            sockets = [f"unix://{folder}/{number}.sock" for number in range(1, num_workers + 1)]
            for number, socket in enumerate(sockets, start=1):
                await processes.start(f"n{number}", *node, listen=socket)
            for process in processes.started:
                await process.listening()
            starting = [
                await processes.start(f"w{number}", *worker, "--node", socket, option="--http")
                for number, socket in enumerate(sockets, start=1)
            ]
            workers = [await process.listening(_LOAD_S) for process in starting]
            routes = [
                f"--node={worker.name}={socket},{worker.address}"
                for worker, socket in zip(workers, sockets, strict=True)
            ]
            router = await processes.start("router", "router", "--http", "127.0.0.1:0", *routes)
            yield (await router.listening()).addresses[-1]


@dataclass(frozen=True)
class _Process:
    name: str
    process: asyncio.subprocess.Process
    stderr: IO[bytes]

    async def listening(self, within_s: float = _START_S) -> Server:
        """Wait for the line that says where the process listens."""
        assert self.process.stdout is not None
        try:
            line = await asyncio.wait_for(self.process.stdout.readline(), within_s)
        except TimeoutError:
            raise self._failed(f"is not listening after {within_s:g} s") from None
        if not line:
            raise self._failed(f"ended at once with exit code {await self.process.wait()}")
        return Server(self.name, tuple(json.loads(line)["addresses"]), self.process.pid)

    def _failed(self, problem: str) -> Unavailable:
        self.stderr.seek(0)
        printed = self.stderr.read().decode(errors="replace").strip()
        return Unavailable(f"{self.name} {problem}: {printed or 'it printed nothing'}")


class _Processes:
    """Server processes that are all stopped when the context closes."""

    def __init__(self) -> None:
        self.started: list[_Process] = []
        self._files = contextlib.ExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stop()

    async def start(
        self, name: str, *arguments: str, option: str = "--listen", listen: str = "127.0.0.1:0"
    ) -> _Process:
        """Start a command; ``option`` is the one that says where it is to listen."""
        # A pipe that nobody reads could fill up.
        stderr = self._files.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        process = await asyncio.create_subprocess_exec(
            # -P: a folder named `router` where the user happens to be is not ours.
            *(sys.executable, "-P", "-m", "prefix_cache.cli", *arguments),
            *(option, listen, "--json", "--until-eof"),
            stdin=asyncio.subprocess.PIPE,  # open as long as we live, even if we are killed
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            process_group=0,  # Ctrl-C in the terminal reaches us alone, and we stop them
        )
        self.started.append(_Process(name, process, stderr))
        return self.started[-1]

    async def _stop(self) -> None:
        """Ask all to end, and kill those that have not after a grace."""
        ends = [asyncio.ensure_future(p.process.communicate()) for p in self.started]
        try:
            for process in self.started:
                with contextlib.suppress(ProcessLookupError):
                    process.process.terminate()
            if ends:
                await asyncio.wait(ends, timeout=_GRACE_S)
        finally:
            for process in self.started:
                with contextlib.suppress(ProcessLookupError):
                    process.process.kill()
            await asyncio.gather(*ends)
            self._files.close()
