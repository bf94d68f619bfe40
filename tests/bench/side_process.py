"""Starts the sides that play rounds in processes of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO

from prefix_cache.cli.bench.harness import Sample


class Side:
    """A running side."""

    def __init__(self, requests: IO[str], responses: IO[str]) -> None:
        self._requests = requests
        self._responses = responses

    def play(self) -> Sample:
        """Play a round, and return its medians."""
        self._requests.write("\n")
        self._requests.flush()
        medians: Sample = json.loads(self._responses.readline())
        return medians


@contextmanager
def running_side(python: str | Path, module: str, modules: Path) -> Iterator[Side]:
    """Run ``module`` of this folder while the context is open; ``modules`` has others it needs."""
    environment = {**os.environ, "PYTHONPATH": str(modules), "PYTHONHASHSEED": "0"}
    with Popen(
        [str(python), "-m", f"tests.bench.{module}"],
        stdin=PIPE,
        stdout=PIPE,
        text=True,
        env=environment,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Side(process.stdin, process.stdout)
