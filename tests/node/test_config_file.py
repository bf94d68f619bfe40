"""Settings from a file: what they mean, and what is said of what they cannot mean."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from prefix_cache.errors import InvalidArgument, MalformedFile
from prefix_cache.node import NodeConfig
from prefix_cache.node.config_file import read_settings


def settings(directory: Path, text: str) -> dict[str, Any]:
    path = directory / "node.toml"
    path.write_text(text)
    return read_settings(path)


def test_a_file_names_settings_as_the_options_of_the_command_are_named(tmp_path: Path) -> None:
    read = settings(
        tmp_path,
        """
        num_blocks = 9
        listen = ["127.0.0.1:0", "unix:///run/node.sock"]
        lease = 5
        drain_grace = 0.5
        model = "llama"
        """,
    )
    assert read == {
        "num_blocks": 9,
        "listen": ("127.0.0.1:0", "unix:///run/node.sock"),
        "lease_s": 5.0,
        "drain_grace_s": 0.5,
        "model": "llama",
    }
    assert NodeConfig(**read).lease_s == 5.0


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert settings(tmp_path, "") == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('num_blocks = "9"', "num_blocks is '9', expected an integer"),
        ("num_blocks = 9.5", "num_blocks is 9.5, expected an integer"),
        ("num_blocks = true", "num_blocks is True, expected an integer"),
        ('lease = "long"', "lease is 'long', expected a number"),
        ("model = 7", "model is 7, expected a string"),
        ('listen = "127.0.0.1:0"', "listen is '127.0.0.1:0', expected an array of strings"),
        ("[num_blocks]\na = 1", "num_blocks is {'a': 1}, expected an integer"),
        ("lease_s = 9", "'lease_s' is no setting, expected one of "),
        ("blocks = 9", "'blocks' is no setting, expected one of "),
    ],
)
def test_what_is_no_setting_is_refused_with_key_value_and_expectation(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        settings(tmp_path, text)
    assert f"node.toml: {said}" in str(refused.value)


def test_what_is_no_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(MalformedFile, match=r"node.toml is no TOML: .* \(at line 2, column 5\)"):
        settings(tmp_path, "num_blocks = 9\nx = ]")


@pytest.mark.parametrize("field", [field.name for field in fields(NodeConfig)])
def test_every_setting_has_words_for_what_is_expected_of_it(tmp_path: Path, field: str) -> None:
    assert field in get_type_hints(NodeConfig)
    key = field.removesuffix("_s")
    with pytest.raises(InvalidArgument, match=f"{key} is .*, expected "):
        settings(tmp_path, f"{key} = 1979-05-27")
