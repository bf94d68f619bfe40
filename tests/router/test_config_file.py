"""A router's config file: what it means, and what is said of what it cannot mean."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument, MalformedFile
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.config_file import ConfigFile

TEXT = """\
# The fleet.
http = "0.0.0.0:8080"
pin_ttl_s = 60

[pools.chat]
models = [
  "llama",
  "llama-8b",
]
policy = "sticky"
hard = true
nodes = {a = "127.0.0.1:50051,http://127.0.0.1:8001", b = "http://127.0.0.1:8002"}

[pools.embed]
dns = "http://embed:8000"
"""


def read(folder: Path, text: str, **given: Any) -> RouterConfig:
    path = folder / "router.toml"
    path.write_text(text)
    return ConfigFile(path, given).read()


def test_a_file_is_the_config_it_says(tmp_path: Path) -> None:
    assert read(tmp_path, TEXT) == RouterConfig(
        http="0.0.0.0:8080",
        pin_ttl_s=60.0,
        pools=(
            PoolConfig(
                name="chat",
                models=("llama", "llama-8b"),
                hard=True,
                nodes=(
                    NodeSpec("a", "127.0.0.1:50051", "http://127.0.0.1:8001"),
                    NodeSpec("b", "", "http://127.0.0.1:8002"),
                ),
            ),
            PoolConfig(name="embed", dns="http://embed:8000"),
        ),
    )


def test_what_is_given_wins_over_the_file(tmp_path: Path) -> None:
    config = read(tmp_path, TEXT, http="127.0.0.1:0", workers=2)
    assert (config.http, config.workers, config.pin_ttl_s) == ("127.0.0.1:0", 2, 60.0)


def test_an_error_in_what_is_given_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"^workers is 0, expected 1 to 1024$"):
        read(tmp_path, "workers = 3\n" + TEXT, workers=0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        # Of another type.
        ("60", '"long"', "line 3: pin_ttl_s is 'long', expected a number"),
        ('"0.0.0.0:8080"', "8080", "line 2: http is 8080, expected a string"),
        ('  "llama",', "  7,", "line 6: pools.chat.models is [7, 'llama-8b'], expected an array"),
        ("hard = true", "hard = 1", "line 11: pools.chat.hard is 1, expected true or false"),
        ('"http://127.0.0.1:8002"', "8002", "line 12: pools.chat.nodes.b is 8002, expected a str"),
        ("[pools.embed]", "[[pools.embed]]", "pools.embed is [{'dns': 'http://embed:8000'}], exp"),
        # Unknown.
        ("pin_ttl_s", "pin_ttl", "line 3: pin_ttl is no setting, did you mean 'pin_ttl_s'?"),
        ("policy", "polcy", "line 10: pools.chat.polcy is no setting, did you mean 'policy'?"),
        ("pin_ttl_s", "zebra", "line 3: zebra is no setting, expected one of attempts, "),
        ("[pools.embed]", "[pool.embed]", "line 14: pool is no setting, did you mean 'pools'?"),
        # Out of range.
        ("60", "0", "line 3: pin_ttl_s is 0.0, expected 0.001 to 2592000.0"),
        ("60", "nan", "line 3: pin_ttl_s is nan, expected 0.001 to 2592000.0"),
        ("hard = true", "max_load_factor = 0.2", "line 11: pools.chat.max_load_factor is 0.2, exp"),
        ('"sticky"', '"best"', "line 10: pools.chat.policy is 'best', expected one of sticky, "),
        # Nodes.
        ("http://127.0.0.1:8002", "https://b", "line 12: pools.chat.nodes.b: 'https://b': engines"),
        ("http://127.0.0.1:8002", "b", "line 12: pools.chat.nodes.b: malformed address 'b'"),
        ("8002", "8001", "line 12: two nodes have the URL 'http://127.0.0.1:8001'"),
        ('dns = "http://embed:8000"', 'nodes.a = "h:1"', "line 15: two nodes are named 'a'"),
        ('dns = "http://embed:8000"', "", "line 14: the pool 'embed' can have no node, expected"),
        ("http://embed:8000", "embed", "line 15: pools.embed.dns: malformed address 'embed'"),
        # What does not go together.
        ('dns = "http://embed:8000"', "registry = true", "line 15: pools.embed.registry is True"),
        (
            'dns = "http://embed:8000"',
            'dns = "http://embed:8000"\nmodels = ["llama"]',
            "line 16: pools.embed.models: the model 'llama' is listed by the pool 'chat' too",
        ),
    ],
)
def test_an_error_is_told_with_its_line_and_setting(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert TEXT.count(old) == 1
    with pytest.raises(InvalidArgument) as refused:
        read(tmp_path, TEXT.replace(old, new))
    assert f"{tmp_path}/router.toml, line " in str(refused.value)
    assert said in str(refused.value)


@pytest.mark.parametrize("text", ["", "workers = 1\n"])
def test_a_file_without_pools_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"line 1: pools is \[\], expected a pool or more"):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["http = \n", 'http = "a"\nhttp = "b"\n', "[pools.a\n"])
def test_what_is_no_toml_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(MalformedFile, match=r"router.toml is no TOML: .*at line \d"):
        read(tmp_path, text)


def test_every_setting_can_be_told_from_what_it_is_not(tmp_path: Path) -> None:
    """A date is what no setting is: each has words for what it expects."""
    for field in fields(RouterConfig):
        with pytest.raises(InvalidArgument, match=f"line 1: {field.name} is .*, expected "):
            read(tmp_path, f"{field.name} = 1979-05-27")
    for field in fields(PoolConfig):
        if field.name != "name":
            with pytest.raises(InvalidArgument, match=f"line 2: pools.p.{field.name} is .*, exp"):
                read(tmp_path, f"[pools.p]\n{field.name} = 1979-05-27")
