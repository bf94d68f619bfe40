"""Help, version, usage errors: what all commands have in common."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

from prefix_cache import __version__
from prefix_cache.cli.router import router
from router.policies import POLICIES
from tests.cli.commands import run

COMMANDS = (
    *("node", "router", "engine", "match", "explain", "watch", "top", "drain"),
    *("demo", "replay", "bench"),
)


def test_help_lists_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_shows_an_example_and_has_json(command: str) -> None:
    done = run(command, "--help")
    assert done.returncode == 0
    assert f"\n    prefix-cache {command}" in done.stdout
    assert "\n  --json " in done.stdout


def test_help_loads_nothing_that_takes_long() -> None:
    code = "import sys, prefix_cache.cli.commands; print(*sys.modules, sep='\\n')"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert "click" in loaded.splitlines()
    assert {"asyncio", "grpc", "numpy", "rich"}.isdisjoint(loaded.splitlines())


def test_the_policies_of_the_option_are_those_of_the_router() -> None:
    (policy,) = (parameter for parameter in router.params if parameter.name == "policy")
    assert isinstance(policy.type, click.Choice)
    assert list(policy.type.choices) == list(POLICIES)


def test_version() -> None:
    assert run("--version").stdout == f"prefix-cache, version {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fly"], "No such command 'fly'"),
        (["demo", "--nodes", "0"], "0 is not in the range x>=1"),
        (["demo", "--file", "a", "--only", "chats"], "'a' does not exist"),
        (["router"], "no nodes: give --node, --config, or a --redis that knows them"),
        (["router", "--config", __file__, "--node", "a=h:1"], "nodes and policies stand in that"),
        (["router", "--redis", "http://h"], "error: redis is no URL of a Redis"),
        (["router", "--node", "a=h:1", "--workers", "2"], "error: workers is 2, expected 1"),
        (["router", "--node", "a"], "error: malformed node 'a': expected NAME=ADDRESS"),
        (["router", "--node", "a=b"], "error: malformed address 'b': expected HOST:PORT"),
        (["node", "--num-blocks", "0"], "0 is not in the range 1<=x<=2147483647"),
        (["node", "--num-blocks", "2147483648"], "2147483648 is not in the range 1<=x<=2147483647"),
        (["node", "--block-size", "1048577"], "1048577 is not in the range 1<=x<=1048576"),
        (["demo", "--num-blocks", "2147483648"], "2147483648 is not in the range 1<=x<=2147483647"),
        (["demo", "--block-size", "1048577"], "1048577 is not in the range 1<=x<=1048576"),
        (["top"], "give --node, or --router"),
        (["top", "--node", "h:1", "--router", "h:1"], "give --node, or --router"),
        (["drain"], "Missing argument 'NODE'"),
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
