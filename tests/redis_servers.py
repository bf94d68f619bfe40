"""Real Redis servers for tests: one, or a cluster of three masters, without persistence."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

DEADLINE_S = 20.0
_SLOTS = 16_384


class RedisServer:
    """A server on a port of its own that can be killed and started again, then empty."""

    def __init__(self, folder: Path, port: int, *options: str) -> None:
        self.port = port
        self._arguments = (
            *("redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)),
            *("--save", "", "--appendonly", "no", *options),
        )
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._process = subprocess.Popen(self._arguments, stdout=subprocess.DEVNULL)
        with self.client() as client:
            _wait_until(lambda: _answers(client))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The server keeps its connections and answers nothing, unless it is killed."""
        process = self._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            process.send_signal(signal.SIGCONT)

    @contextmanager
    def client(self) -> Iterator[Redis]:
        client = Redis(port=self.port, decode_responses=True)
        try:
            yield client
        finally:
            client.close()

    def info(self, section: str) -> dict[str, Any]:
        """What the server says of itself."""
        with self.client() as client:
            return dict(client.info(section))

    def calls(self) -> dict[str, int]:
        """How often each command was called."""
        stats = self.info("commandstats")
        return {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """One server, ended with the context."""
    if shutil.which("redis-server") is None:
        pytest.skip("no redis-server here: install it to test what is shared through Redis")
    with tempfile.TemporaryDirectory() as folder:
        server = RedisServer(Path(folder), _free_port(), *options)
        try:
            server.start()
            yield server
        finally:
            server.kill()


@contextmanager
def redis_cluster() -> Iterator[tuple[RedisServer, ...]]:
    """Three masters that share the slots."""
    with ExitStack() as stack:
        # The second port is the servers' own among themselves, else the port + 10,000.
        servers = tuple(
            stack.enter_context(
                redis_server(
                    *("--cluster-enabled", "yes", "--cluster-port", str(_free_port())),
                    *("--cluster-node-timeout", "500"),
                )
            )
            for _ in range(3)
        )
        join_cluster(servers)
        yield servers


def join_cluster(servers: tuple[RedisServer, ...]) -> None:
    """Give each server its part of the slots, and make them know each other."""
    bounds = [_SLOTS * index // len(servers) for index in range(len(servers) + 1)]
    with ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for server in servers]
        for client, first, end in zip(clients, bounds, bounds[1:], strict=False):
            _command(client, "CLUSTER ADDSLOTSRANGE", first, end - 1)
        for client, server in zip(clients, servers, strict=True):
            (bus_port,) = client.config_get("cluster-port").values()
            _command(clients[0], "CLUSTER MEET", "127.0.0.1", server.port, bus_port)
        _wait_until(lambda: all(_is_whole(client, len(servers)) for client in clients))


def _is_whole(client: Redis, size: int) -> bool:
    info = _command(client, "CLUSTER INFO")
    return info["cluster_state"] == "ok" and int(info["cluster_known_nodes"]) == size


def _command(client: Redis, *words: object) -> Any:
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def _answers(client: Redis) -> bool:
    with suppress(RedisError):
        return bool(client.ping())
    return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)
