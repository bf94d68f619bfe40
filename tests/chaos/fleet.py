"""Engines and routers as processes that can be killed and started again where they were."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

_TIMEOUT_S = 30.0
# Streams that last long enough for something to happen to them.
_ENGINE = ("engine", "--decode-s-per-token", "0.01", "--prefill-tokens-per-s", "20000")


class Server:
    """One of our commands that serves HTTP, at one address over all its lives.

    ``option`` is the one that says where.  What it logs is appended to the file ``log``.
    """

    def __init__(self, log: Path, option: str, *command: str) -> None:
        self._log = log
        self._option = option
        self._command = command
        self._process = self._start("127.0.0.1:0")

    @cached_property
    def url(self) -> str:
        """Where it serves HTTP, once it does."""
        return self._listening()

    def kill(self) -> None:
        """End it as the kernel does when memory is short."""
        with self._process as process:
            process.kill()

    def start_again(self) -> None:
        """Begin another life."""
        self._process = self._start(self.url.removeprefix("http://"))
        self._listening()

    def get(self, path: str) -> Any:
        """The JSON that a path answers."""
        with urlopen(self.url + path, timeout=_TIMEOUT_S) as answer:
            return json.load(answer)

    def fail(self, **faults: Any) -> None:
        """Set the faults of an engine; none: it is well again."""
        with urlopen(Request(f"{self.url}/faults", json.dumps(faults).encode())):
            pass

    def _start(self, address: str) -> subprocess.Popen[str]:
        with self._log.open("a") as log:
            return subprocess.Popen(
                [
                    *(sys.executable, "-m", "prefix_cache.cli", *self._command),
                    *(self._option, address, "--json"),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def _listening(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()
        addresses: list[str] = json.loads(line)["addresses"]
        return addresses[-1]


class Fleet:
    """Engines ``a``, ``b`` and ``c``, and two routers that share a Redis.

    ``settings`` are lines of the routers' config file.
    """

    def __init__(self, stack: ExitStack, folder: Path, settings: str) -> None:
        def server(name: str, option: str, *command: str) -> Server:
            started = Server(folder / f"{name}.log", option, *command)
            stack.callback(started.kill)
            return started

        self.engines = {name: server(name, "--listen", *_ENGINE) for name in "abc"}
        nodes = ", ".join(f'{name} = "{engine.url}"' for name, engine in self.engines.items())
        config = folder / "router.toml"
        config.write_text(
            f"listen = []\nprobe_interval_s = 0.1\n{settings}\n"
            f"[pools.default]\nnodes = {{ {nodes} }}\n"
        )
        command = ("router", "--config", str(config))
        self.routers = [server(name, "--http", *command) for name in ("left", "right")]

    def nodes(self) -> Mapping[str, Any]:
        """What the first router says of each node."""
        return {node["name"]: node for node in self.routers[0].get("/nodes")["nodes"]}


@contextmanager
def running_fleet(folder: Path, settings: str) -> Iterator[Fleet]:
    """A fleet of processes, all killed at the end."""
    with ExitStack() as stack:
        yield Fleet(stack, folder, settings)
