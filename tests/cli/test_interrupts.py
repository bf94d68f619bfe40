"""Ctrl-C and its like: what was started is stopped, whenever they come."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.commands import running
from tests.node.nodes import wait_until
from tests.processes import children, is_running

# Runs before the command: Python imports this by itself.
INTERRUPT = """
import os, signal, sys

class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
"""


@pytest.fixture
def long_file(tmp_path: Path) -> Path:
    """Conversations that take far longer to play than a test lasts."""
    path = tmp_path / "long.jsonl"
    exchange = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!" * 500}]
    line = json.dumps({"messages": exchange * 50}) + "\n"
    path.write_text(line * 200)
    return path


def children_of(demo: subprocess.Popen[str], at_least: int) -> set[int]:
    """Wait until the demo has so many children."""
    wait_until(lambda: len(children(demo.pid)) >= at_least or demo.poll() is not None)
    assert demo.poll() is None, demo.communicate()
    return children(demo.pid)


@pytest.mark.parametrize(
    ("number", "num_children", "exit_code"),
    [
        pytest.param(signal.SIGINT, 1, 130, id="Ctrl-C while starting"),
        pytest.param(signal.SIGINT, 2, 130, id="Ctrl-C while playing"),
        pytest.param(signal.SIGTERM, 2, 143, id="SIGTERM"),
        pytest.param(signal.SIGHUP, 2, 129, id="terminal closed"),
    ],
)
def test_a_demo_that_is_stopped_leaves_no_process_behind(
    long_file: Path, number: signal.Signals, num_children: int, exit_code: int
) -> None:
    with running("demo", "--nodes", "1", "--file", str(long_file)) as demo:
        started = children_of(demo, num_children)
        os.killpg(demo.pid, number)  # as a terminal does
        out, err = demo.communicate(timeout=30)
    assert demo.returncode == exit_code
    assert (out, err) == ("", "")
    assert [pid for pid in started if is_running(pid)] == []


def test_a_demo_that_is_killed_takes_its_processes_with_it(long_file: Path) -> None:
    with running("demo", "--nodes", "1", "--file", str(long_file)) as demo:
        started = children_of(demo, 2)
        demo.kill()
        demo.wait(timeout=30)
        wait_until(lambda: not any(is_running(pid) for pid in started))


# Runs before the command: Python imports this by itself.
INTERRUPT_AT_THE_END = """
import atexit, os, signal

atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize(
    "module", ["prefix_cache.errors", "click", "prefix_cache.cli.commands", "numpy", "rich.table"]
)
def test_ctrl_c_while_it_still_loads_ends_it_without_a_traceback(
    tmp_path: Path, module: str
) -> None:
    """It comes just when the module is imported."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT.format(module=module))
    with running("demo", "--only", "mission", PYTHONPATH=str(tmp_path)) as demo:
        out, err = demo.communicate(timeout=30)
    assert demo.returncode == 130
    assert (out, err) == ("", "")


def test_ctrl_c_when_it_has_done_its_work_ends_it_without_a_traceback(tmp_path: Path) -> None:
    """It comes while Python ends: the process is gone then, as if it had never heard of signals."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPT_AT_THE_END)
    with running("size", "llama-3.1-8b", PYTHONPATH=str(tmp_path)) as size:
        out, err = size.communicate(timeout=30)
    assert size.returncode == -signal.SIGINT
    assert out.startswith("llama-3.1-8b")
    assert err == ""


def test_a_second_ctrl_c_does_not_disturb_the_cleaning_up(long_file: Path) -> None:
    with running("demo", "--nodes", "1", "--file", str(long_file)) as demo:
        started = children_of(demo, 2)
        for _ in range(3):
            os.killpg(demo.pid, signal.SIGINT)
        demo.communicate(timeout=30)
    assert demo.returncode == 130
    assert [pid for pid in started if is_running(pid)] == []
