"""The command line as its users run it: as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

_COMMAND = [sys.executable, "-W", "error", "-m", "prefix_cache.cli"]


def run(
    *arguments: str, stdin: bytes = b"", stdout: int | IO[bytes] = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(
        [*_COMMAND, *arguments],
        input=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    return subprocess.CompletedProcess(
        done.args, done.returncode, (done.stdout or b"").decode(), done.stderr.decode()
    )


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A command that runs, in a process group of its own as a shell would start it."""
    process = subprocess.Popen(
        [*_COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
        env={**os.environ, **environment},
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """The line that says where a server listens."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
