"""What commands print does not arrive: the reader is gone, or the file takes no more."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.cli.commands import first_line, run, running
from tests.node.nodes import node_process


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with node_process() as node:
        yield node.address


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_goes_ends_top_without_a_word(address: str, form: list[str]) -> None:
    """As ``prefix-cache top | head -1`` does."""
    with running("top", "--node", address, "--interval", "0.1", *form) as top:
        assert first_line(top)
        assert top.stdout is not None
        assert top.stderr is not None
        top.stdout.close()
        assert top.wait(30) == 1
        assert top.stderr.read() == ""


@pytest.mark.parametrize(
    "command",
    [
        ["top", "--once", "--node"],
        ["top", "--once", "--json", "--node"],
        ["watch", "--node"],
        ["match", "hello", "--node"],
    ],
)
def test_output_that_takes_no_more_is_one_line_and_exit_code_1(
    address: str, command: list[str]
) -> None:
    with open(os.devnull, "rb") as not_writable:
        done = run(*command, address, stdout=not_writable)
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 9] Bad file descriptor\n"
