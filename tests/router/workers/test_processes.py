"""A router of several processes, as its users run it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from prefix_cache.client import AsyncRouterClient
from prefix_cache.testing import Engine, Faults, running_engine
from tests.cli.commands import first_line, run, running
from tests.processes import children, is_running
from tests.prometheus import values

DEADLINE_S = 20.0


@dataclass(frozen=True)
class Router:
    process: subprocess.Popen[str]
    grpc: str
    url: str
    engines: tuple[Engine, ...] = ()

    @property
    def workers(self) -> set[int]:
        """The processes that share the port."""
        return {pid for pid in children(self.process.pid) if "spawn_main" in _command(pid)}


def _command(pid: int) -> str:
    done = subprocess.run(
        ["ps", "-ww", "-p", str(pid), "-o", "args="], check=False, capture_output=True, text=True
    )
    return done.stdout


@asynccontextmanager
async def router(*options: str) -> AsyncGenerator[Router, None]:
    with running(
        *("router", "--json", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0", *options)
    ) as process:
        # In a thread: the engines that it probes run in this event loop.
        line = await asyncio.to_thread(first_line, process)
        yield Router(process, *json.loads(line)["addresses"])


@asynccontextmanager
async def workers(count: int) -> AsyncGenerator[Router, None]:
    """A router of so many workers in front of four engines."""
    async with (
        running_engine() as a,
        running_engine() as b,
        running_engine() as c,
        running_engine() as d,
    ):
        engines = (a, b, c, d)
        nodes = [f"--node={name}={each.url}" for name, each in zip("abcd", engines, strict=True)]
        async with router("--workers", str(count), *nodes) as opened:
            yield replace(opened, engines=engines)


def listens(url: str) -> bool:
    parts = urlsplit(url)
    with socket.socket() as client:
        return client.connect_ex((parts.hostname, parts.port)) == 0


async def ask(url: str, conversation: str, turns: int) -> tuple[str, str]:
    """Ask over a connection of its own, which any worker may take: the node and the reason."""
    messages = [{"role": "user", "content": f"{conversation} {turn}"} for turn in range(turns)]
    async with (
        aiohttp.ClientSession(url) as session,
        session.post(
            "/v1/chat/completions",
            json={"model": "test", "messages": messages},
            headers={"X-Session-ID": conversation},
        ) as answer,
    ):
        assert answer.status == 200, await answer.text()
        return answer.headers["x-prefix-cache-node"], answer.headers["x-prefix-cache-reason"]


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.01)


async def test_turns_that_land_on_different_workers_stay_at_home() -> None:
    async with workers(3) as opened:
        assert len(opened.workers) == 3
        homes: dict[str, str] = {}
        for turn in range(1, 8):
            for number in range(20):
                node, reason = await ask(opened.url, f"chat-{number}", turn)
                assert homes.setdefault(f"chat-{number}", node) == node
                assert reason == ("new" if turn == 1 else "pinned")
        assert set(homes.values()) == {"a", "b", "c", "d"}

        opened.process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(opened.process.wait, 30) == 0


async def test_a_worker_that_was_killed_is_started_again_and_knows_the_pins() -> None:
    async with workers(2) as opened:
        homes = {f"chat-{n}": (await ask(opened.url, f"chat-{n}", 1))[0] for n in range(20)}
        before = opened.workers
        killed = max(before)
        os.kill(killed, signal.SIGKILL)
        await until(lambda: not is_running(killed))
        await until(lambda: len(opened.workers) == 2)
        assert opened.workers & before == before - {killed}

        for turn in range(2, 7):
            for conversation, home in homes.items():
                assert await ask(opened.url, conversation, turn) == (home, "pinned")


async def test_one_worker_serves_grpc_and_all_end_with_their_parent_however_that_ends() -> None:
    async with workers(2) as opened:
        async with AsyncRouterClient(opened.grpc) as client:
            _, nodes = await client.list_nodes()
            assert [node.name for node in nodes] == ["a", "b", "c", "d"]
        left = opened.workers
        opened.process.kill()
        await until(lambda: not any(map(is_running, left)))


async def test_ctrl_c_lets_requests_under_way_end() -> None:
    """It goes to every process of the terminal's group; each worker is told once."""
    async with workers(2) as opened:
        left = opened.workers
        for engine in opened.engines:
            engine.faults.set(Faults(hang=True, requests=1))
        answer = asyncio.create_task(ask(opened.url, "chat", 1))
        await until(lambda: not all(engine.faults.now.hang for engine in opened.engines))

        os.killpg(opened.process.pid, signal.SIGINT)
        await until(lambda: not listens(opened.url))
        for engine in opened.engines:
            engine.faults.set(Faults())

        assert (await answer)[1] == "new"
        assert await asyncio.to_thread(opened.process.wait, 30) == 0
        assert not any(map(is_running, left))
        assert opened.process.stderr is not None
        assert "ended with exit code" not in opened.process.stderr.read()


async def test_a_config_file_that_changed_is_taken_over_by_every_worker(tmp_path: Path) -> None:
    async with running_engine() as a, running_engine() as b:
        path = tmp_path / "router.toml"
        path.write_text(f'workers = 2\n[pools.chat]\nnodes = {{a = "{a.url}"}}\n')
        async with router("--config", str(path)) as opened:
            assert {(await ask(opened.url, f"{n}", 1))[0] for n in range(10)} == {"a"}
            path.write_text(f'workers = 2\n[pools.chat]\nnodes = {{b = "{b.url}"}}\n')
            opened.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + DEADLINE_S
            while {(await ask(opened.url, f"{n}", 2))[0] for n in range(10)} != {"b"}:
                assert time.monotonic() < deadline, "the file was not taken over"
            opened.process.send_signal(signal.SIGTERM)
            _, err = await asyncio.to_thread(opened.process.communicate)
    assert err.count("router.toml was read again") >= 2
    assert "restart the router" not in err


async def test_a_worker_that_is_started_again_goes_by_the_file_as_it_is_now(tmp_path: Path) -> None:
    async with running_engine() as a, running_engine() as b:
        path = tmp_path / "router.toml"
        path.write_text(f'workers = 2\n[pools.chat]\nnodes = {{a = "{a.url}"}}\n')
        async with router("--config", str(path)) as opened:
            path.write_text(f'workers = 2\n[pools.chat]\nnodes = {{b = "{b.url}"}}\n')
            await kill_one(opened)
            deadline = time.monotonic() + DEADLINE_S
            while any("node=a," in key for key in await scrape(opened.url)):
                assert time.monotonic() < deadline, "a worker has the node of the old file"
                await asyncio.sleep(0.01)


async def test_a_node_told_to_drain_is_left_by_every_worker() -> None:
    async with workers(3) as opened, AsyncRouterClient(opened.grpc) as client:
        homes = {f"chat-{n}": (await ask(opened.url, f"chat-{n}", 1))[0] for n in range(12)}
        assert "a" in homes.values()
        await client.drain("a")
        # Over connections of their own, until each worker must have been told.
        deadline = time.monotonic() + DEADLINE_S
        quiet = 0
        while quiet < 10:
            assert time.monotonic() < deadline, "a worker still sends turns there"
            nodes = {(await ask(opened.url, chat, 2))[0] for chat in homes}
            quiet = 0 if "a" in nodes else quiet + 1


async def scrape(url: str) -> dict[str, float]:
    """Ask over a connection of its own, which any worker may take."""
    async with aiohttp.ClientSession(url) as session, session.get("/metrics") as answer:
        return values(await answer.text())


def total(scraped: dict[str, float], name: str) -> float:
    """The sum over nodes and workers."""
    return sum(value for key, value in scraped.items() if key.startswith(f"{name}{{"))


async def test_every_worker_tells_of_all() -> None:
    async with workers(3) as opened:
        ids = [f"request-{number}" for number in range(24)]
        async with aiohttp.ClientSession(
            opened.url, connector=aiohttp.TCPConnector(force_close=True)
        ) as session:
            for number, request_id in enumerate(ids):
                message = {"role": "user", "content": f"{number}"}
                async with session.post(
                    "/v1/chat/completions",
                    json={"model": "test", "messages": [message]},
                    headers={"X-Session-ID": f"chat-{number % 4}", "X-Request-ID": request_id},
                ) as answer:
                    assert answer.status == 200

            for _ in range(6):
                now = await scrape(opened.url)
                assert now["prefix_cache_router_workers_answering"] == 3
                assert total(now, "prefix_cache_router_turns_total") == 24
                assert total(now, "prefix_cache_router_http_answers_total") == 24
                assert now["prefix_cache_router_pins"] == 4
            answered = [value for key, value in now.items() if "http_answers_total{" in key]
            assert len(answered) > 1, "one worker took all connections"

            for request_id in ids:
                async with session.get("/explain", params={"id": request_id}) as answer:
                    assert answer.status == 200, f"{request_id} is not found"
            for _ in range(6):
                async with session.get("/conversations") as answer:
                    shown = (await answer.json())["conversations"]
                assert [each["conversation"] for each in shown] == [
                    *("chat-3", "chat-2", "chat-1", "chat-0")
                ]
                assert [each["sums"]["turns"] for each in shown] == [6, 6, 6, 6]

        async with AsyncRouterClient(opened.grpc) as client:
            assert sum(node.turns for node in (await client.list_nodes())[1]) == 24
            for request_id in ids:
                assert (await client.explain_request(request_id)).node in "abcd"
        done = await asyncio.to_thread(run, "top", "--once", "--json", "--router", opened.url)
        assert json.loads(done.stdout)["sums"]["turns"] == 24


async def kill_one(opened: Router, *, hanging_up: bool = False) -> dict[str, float]:
    """Kill one of two workers, wait until another is in its place, and return a scrape then."""
    killed = max(opened.workers)
    os.kill(killed, signal.SIGKILL)
    await until(lambda: not is_running(killed))
    deadline = time.monotonic() + DEADLINE_S
    while (now := await scrape(opened.url))["prefix_cache_router_workers_answering"] < 2:
        assert time.monotonic() < deadline, "it was not started again"
        if hanging_up:
            opened.process.send_signal(signal.SIGHUP)
        await asyncio.sleep(0.01)
    return now


async def test_a_worker_that_was_killed_counts_anew_and_the_others_go_on() -> None:
    async with workers(2) as opened:
        for number in range(16):
            await ask(opened.url, f"chat-{number}", 1)
        before = turns_by_worker(await scrape(opened.url))
        now = await kill_one(opened)

    (first, second), after = before, turns_by_worker(now)
    assert first + second == 16
    assert after in ([0, second], [first, 0])


def turns_by_worker(scraped: dict[str, float]) -> list[float]:
    """What each of two has served."""
    turns = {key: value for key, value in scraped.items() if "router_turns_total{" in key}
    return [
        sum(value for key, value in turns.items() if f"worker={worker}}}" in key)
        for worker in range(2)
    ]


@pytest.mark.parametrize("count", [1, 2])
async def test_a_hang_up_without_a_config_file_is_told_and_ends_nothing(count: int) -> None:
    async with (
        running_engine() as engine,
        router("--workers", str(count), f"--node=a={engine.url}") as opened,
    ):
        opened.process.send_signal(signal.SIGHUP)
        for number in range(10):
            assert (await ask(opened.url, f"{number}", 1))[0] == "a"
        opened.process.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(opened.process.communicate)
    assert opened.process.returncode == 0
    assert err.count("SIGHUP: there is no config file to be read again") == count
    assert "ended with exit code" not in err


async def test_a_hang_up_does_not_end_a_worker_that_starts() -> None:
    async with (
        running_engine() as engine,
        router("--workers", "2", f"--node=a={engine.url}") as opened,
    ):
        await kill_one(opened, hanging_up=True)
        opened.process.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(opened.process.communicate)
    assert err.count("ended with exit code") == 1


@pytest.mark.parametrize("shares", [True, False])
def test_a_port_that_others_listen_at_is_refused(shares: bool) -> None:
    with socket.socket() as other:
        if shares:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = run("router", "--http", address, "--workers", "2", "--node", "a=http://127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: cannot listen on '{address}': ")


def test_what_keeps_a_worker_from_starting_is_told_and_ends_all() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = run(
            *("router", "--http", "127.0.0.1:0", "--listen", address, "--workers", "2"),
            *("--node", "a=http://127.0.0.1:1"),
        )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"error: cannot listen on '{address}': ")
