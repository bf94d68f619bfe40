"""A node started from a file of settings."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from prefix_cache import Identity
from prefix_cache.cli.node import node as command
from prefix_cache.client import NodeClient
from prefix_cache.errors import ClientLimit, UnknownCopy
from prefix_cache.node import NodeConfig
from prefix_cache.node.config_file import read_settings
from tests.cli.commands import first_line, run, running
from tests.node.nodes import wait_until

WHO = Identity("m")
_NO_TIME = "--copy-timeout is 0.0, expected 0.001 to 2592000.0"
_NO_OPERATIONS = "--max-operations-per-step is 0, expected 1 to 2147483647"


def test_options_win_over_the_file_and_the_file_over_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('listen = ["127.0.0.1:0"]\nnum_blocks = 9\nblock_size = 4\nname = "left"\n')
    with (
        running("node", "--config", str(path), "--num-blocks", "10") as node,
        NodeClient(first_line(node).removeprefix("listening on ")) as client,
    ):
        info = client.info()
    assert (info.num_blocks, info.block_size, info.name, info.model) == (10, 4, "left", "")


def test_leases_and_limits_are_what_the_options_say() -> None:
    with (
        running(
            *("node", "--listen", "127.0.0.1:0", "--lease", "5", "--max-lease", "10"),
            *("--max-sequences-per-client", "2", "--max-blocks-per-client", "3"),
        ) as node,
        NodeClient(first_line(node).removeprefix("listening on ")) as client,
    ):
        assert client.acquire(WHO, [1]).lease_s == 5.0
        with pytest.raises(ClientLimit, match="needs 3 more, one client may hold 3"):
            client.acquire(WHO, [1] * 33)
        assert client.acquire(WHO, [1], lease_s=60).lease_s == 10.0
        with pytest.raises(ClientLimit, match="needs 1 more, one client may hold 2"):
            client.acquire(WHO, [1])


def test_the_host_tier_is_what_the_options_say() -> None:
    with (
        running(
            *("node", "--listen", "127.0.0.1:0", "--num-blocks", "1"),
            *("--host-blocks", "7", "--copy-timeout", "0.05"),
        ) as node,
        NodeClient(first_line(node).removeprefix("listening on ")) as client,
    ):
        assert client.info().host_blocks == 7
        sequence = client.acquire(WHO, [1] * 16)
        client.commit(sequence.id, 16)
        client.release(sequence.id)
        copies = client.acquire(WHO, [2]).copies
        assert copies.offloads == ((0, 0),)
        wait_until(lambda: not client.stats().pending_copies)
        with pytest.raises(UnknownCopy):
            client.acknowledge(copies.copy_id)


def test_a_file_that_makes_no_sense_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text("num_blocks = 'many'")
    done = run("node", "--config", str(path))
    assert done.returncode == 2
    assert done.stderr == f"error: {path}: num_blocks is 'many', expected an integer\n"


@pytest.mark.parametrize(
    ("text", "options", "said"),
    [
        ("listen = []", [], "{path}: listen is empty, expected an address or more"),
        ("num_blocks = 0", [], "{path}: num_blocks is 0, expected 1 to 2147483647"),
        ("lease = 700", [], "{path}: lease is 700.0, expected 0.001 to 600.0"),
        ("lease = 700", ["--lease", "800"], "--lease is 800.0, expected 0.001 to 600.0"),
        ("num_blocks = 9", ["--lease", "nan"], "--lease is nan, expected 0.001 to 600.0"),
        ("host_blocks = -1", [], "{path}: host_blocks is -1, expected 0 to 2147483647"),
        ("block_size = 4", ["--copy-timeout", "0"], _NO_TIME),
        ("block_size = 4", ["--max-operations-per-step", "0"], _NO_OPERATIONS),
    ],
)
def test_a_value_out_of_range_is_said_with_the_file_it_came_from(
    tmp_path: Path, text: str, options: list[str], said: str
) -> None:
    path = tmp_path / "node.toml"
    path.write_text(text)
    done = run("node", "--config", str(path), *options)
    assert done.returncode == 2
    assert done.stderr == f"error: {said.format(path=path)}\n"


def test_a_shorter_longest_lease_shortens_the_one_that_nobody_set(tmp_path: Path) -> None:
    path = tmp_path / "node.toml"
    path.write_text('listen = ["127.0.0.1:0"]\nmax_lease = 5')
    with (
        running("node", "--config", str(path)) as node,
        NodeClient(first_line(node).removeprefix("listening on ")) as client,
    ):
        assert client.acquire(WHO, [1]).lease_s == 5.0


def test_every_setting_is_an_option_and_a_key_of_the_file(tmp_path: Path) -> None:
    options = {option.opts[0]: option.name for option in command.params}
    path = tmp_path / "node.toml"
    for name, default in asdict(NodeConfig()).items():
        option = next(option for option, parameter in options.items() if parameter == name)
        value = list(default) if name == "listen" else default
        path.write_text(f"{option.removeprefix('--').replace('-', '_')} = {json.dumps(value)}")
        assert read_settings(path) == {name: default}


def test_the_help_shows_the_defaults_there_are() -> None:
    shown = command.make_context("node", []).params
    for name, default in asdict(NodeConfig()).items():
        assert shown[name] == default, name
