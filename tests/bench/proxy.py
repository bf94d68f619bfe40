"""The proxy before four engines that answer at once, against asking one of them directly."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from prefix_cache.cli.bench.harness import Case, Sample, Side
from tests.bench.http_load import Load, arguments
from tests.bench.scale import Scale

_ENGINES = 4


async def proxy_cases(scale: Scale) -> AsyncGenerator[Case]:
    """Latency of one connection, then requests of 64 at once; by one process and by two."""
    async with _listening(_engine_command()) as (urls, engines):
        for workers in (1, 2):
            async with _listening(_router_command(urls, workers)) as ([*_, url], pid):
                for name, load in _loads(scale).items():
                    yield Case(
                        f"{name}, {workers} worker{'s' * (workers > 1)}",
                        _played(urls[0], load, engines),
                        _played(url, load, pid),
                    )


def _loads(scale: Scale) -> dict[str, Load]:
    one, many = scale.requests, 4 * scale.requests
    sizes = {"1 KB": 900, "64 KiB": 65_300}
    return {
        **{name: Load(requests=one, size=size) for name, size in sizes.items()},
        **{
            f"{name}, streamed": Load(requests=one, size=size, stream=True)
            for name, size in sizes.items()
        },
        "ten turns": Load(requests=one, size=1_000, shared=2_000, turns=10),
        **{f"{name}, 64 connections": Load(64, many, size=size) for name, size in sizes.items()},
        "ten turns, 64 connections": Load(64, many, size=1_000, shared=2_000, turns=10),
    }


def _played(url: str, load: Load, pid: int) -> Side:
    """What the load measured, and what the process that it asked and its children spent on it."""

    async def side() -> Sample:
        before = _cpu_us(pid)
        process = await asyncio.create_subprocess_exec(
            *arguments(url, load), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, f"the load failed against {url}"
        sample: dict[str, float] = json.loads(output)
        return {**sample, "CPU": (_cpu_us(pid) - before) / load.requests}

    return side


def _cpu_us(pid: int) -> float:
    """Processor time of a process, its threads and its children until now."""
    spent = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        spent += int((thread / "schedstat").read_text().split()[0]) / 1000
        spent += sum(_cpu_us(int(child)) for child in (thread / "children").read_text().split())
    return spent


def _engine_command() -> Sequence[str]:
    return ("-m", "tests.bench.http_engine", str(_ENGINES))


def _router_command(urls: Sequence[str], workers: int) -> Sequence[str]:
    nodes = [f"--node=w{number}={url}" for number, url in enumerate(urls)]
    listen = ("--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", "--workers", str(workers))
    return ("-m", "prefix_cache.cli", "router", "--json", *listen, *nodes)


@asynccontextmanager
async def _listening(command: Sequence[str]) -> AsyncIterator[tuple[list[str], int]]:
    """Run a process while the context is open; the value is where it listens, and its pid."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        said = json.loads(await process.stdout.readline())
        yield said["addresses"], process.pid
    finally:
        process.terminate()
        await process.wait()
