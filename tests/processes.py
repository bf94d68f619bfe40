"""Other processes as the system sees them."""

from __future__ import annotations

import subprocess


def children(pid: int) -> set[int]:
    """Children of a process that have not ended."""
    rows = [line.split() for line in _ps("-A", "-o", "pid=,ppid=,stat=,comm=").splitlines()]
    return {
        int(child)
        for child, parent, stat, *command in rows
        if int(parent) == pid and not _has_ended(stat) and not command[-1].endswith("ps")
    }


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    state = _ps("-p", str(pid), "-o", "stat=").strip()
    return bool(state) and not _has_ended(state)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    return 1024 * int(_ps("-p", str(pid), "-o", "rss="))


def _ps(*arguments: str) -> str:
    return subprocess.run(["ps", *arguments], check=False, capture_output=True, text=True).stdout


def _has_ended(stat: str) -> bool:
    # While a thread ("l") of a zombie is still ending, its sockets take connections.
    return stat.startswith("Z") and "l" not in stat
