"""The services of ``deploy/compose.yaml`` as processes of this machine, without containers."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
GRACE_S = 30.0

_HOST_AND_PORT = re.compile(r"([a-z0-9.-]+):(\d+)")


def services() -> dict[str, Any]:
    """The services by name."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    return found


def ours() -> dict[str, Any]:
    """Those that run our image."""
    return {name: each for name, each in services().items() if each["image"] == "prefix-cache"}


class Loopback:
    """Puts ports of this machine in the place of the addresses of services.

    ``known`` are the ports of services that run here already, by their addresses there.
    """

    def __init__(self, known: Mapping[str, int]) -> None:
        self._ports = dict(known)
        with ExitStack() as open_until_all_are_found:
            for name, service in ours().items():
                for found in _HOST_AND_PORT.finditer(" ".join(service["command"])):
                    if (there := _address(name, found)) not in self._ports:
                        free = open_until_all_are_found.enter_context(socket.socket())
                        free.bind(("127.0.0.1", 0))
                        self._ports[there] = free.getsockname()[1]

    def here(self, there: str) -> str:
        """Where ``service:port`` is reached on this machine."""
        return f"127.0.0.1:{self._ports[there]}"

    def command(self, service: str, configuration: Mapping[str, Any]) -> list[str]:
        """The arguments that the service is started with here."""
        arguments = [
            _HOST_AND_PORT.sub(lambda found: self.here(_address(service, found)), argument)
            for argument in configuration["command"]
        ]
        for volume in configuration.get("volumes", ()):
            source, target, _ = volume.split(":")
            path = str((DEPLOY / source).resolve())
            arguments = [argument.replace(target, path) for argument in arguments]
        return arguments


def _address(service: str, found: re.Match[str]) -> str:
    host = service if found[1] == "0.0.0.0" else found[1]
    return f"{host}:{found[2]}"


@contextmanager
def running_services(loopback: Loopback) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start our services in the order in which they depend on each other.

    Each listens when the next begins.  At the end each is told to end, last one first.
    """
    processes: dict[str, subprocess.Popen[str]] = {}
    with ExitStack() as stack:
        waiting = ours()
        while waiting:
            name = next(n for n in waiting if not waiting.keys() & set(waiting[n]["depends_on"]))
            command = loopback.command(name, waiting.pop(name))
            processes[name] = stack.enter_context(_running(command))
        yield processes


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "prefix_cache.cli", *command, "--json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "listening"
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(GRACE_S) == 0
        finally:
            process.kill()
