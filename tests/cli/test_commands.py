"""Help, version, usage errors: what all commands have in common."""

from __future__ import annotations

import pytest

from prefix_cache import __version__
from tests.cli.commands import run


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ("node", "router", "match", "demo", "bench"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("command", ["node", "router", "match", "demo", "bench"])
def test_every_command_shows_an_example_and_has_json(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"\n    prefix-cache {command}" in done.stdout
    assert "\n  --json " in done.stdout


def test_version() -> None:
    assert run("--version").stdout == f"prefix-cache, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fly"], "No such command 'fly'"),
        (["demo", "--nodes", "0"], "0 is not in the range x>=1"),
        (["demo", "--file", "a", "--only", "chats"], "'a' does not exist"),
        (["router"], "Missing option '--node'"),
        (["router", "--node", "a"], "error: malformed node 'a': expected NAME=ADDRESS"),
        (["node", "--num-blocks", "0"], "error: num_blocks is 0, expected an integer from 1"),
        (["match", "hello"], "Missing option '--node'"),
    ],
)
def test_bad_usage_exits_with_2_and_says_what_is_wrong(
    arguments: list[str], complaint: str
) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
