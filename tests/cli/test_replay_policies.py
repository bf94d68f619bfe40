"""``prefix-cache replay --policy``: a trace on simulated nodes."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from prefix_cache.cli.replay.command import replay
from prefix_cache.replay.policies.policy_comparison import CONTESTANTS
from prefix_cache.replay.policies.simulation import MakePolicy, SimulatedNode
from router.policies import Policy
from tests.cli.commands import run

REQUESTS = [
    {"timestamp": 1000 * at, "input_length": 1024, "output_length": 5, "hash_ids": [0, chat]}
    for at in range(10)
    for chat in (1, 2)
]
TRACE = "".join(f"{json.dumps(request)}\n" for request in REQUESTS).encode()


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(TRACE)
    return str(path)


def test_json_of_every_policy(trace: str) -> None:
    done = run("replay", trace, "--nodes", "2", "--blocks", "3", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert (found["prompt_tokens"], found["cached_tokens"]) == (20_480, 9_728)
    assert [each["policy"] for each in found["policies"]] == list(CONTESTANTS)
    assert found["pooled_lru_hit_rate"] == 37 / 40
    assert (found["requests"], found["nodes"], found["blocks"]) == (20, 2, 3)
    sticky = found["policies"][0]
    assert sticky == {
        "policy": "sticky",
        "hit_rate": 0.9,
        "uncached_tokens": 2048,
        "eviction_tokens": 0,
        "routing_tokens": 512,
        "imbalance": 1.0,
        "ttft_mean": pytest.approx(0.0128),
        "ttft_p50": 0.0,
        "ttft_p99": pytest.approx(0.128),
    }
    assert "sticky" in found["frontier"]


def test_packed_is_as_plain_and_a_policy_may_be_named_twice(trace: str, tmp_path: Path) -> None:
    packed = tmp_path / "trace.jsonl.gz"
    packed.write_bytes(gzip.compress(TRACE))
    options = ("--policy", "round_robin", "--policy", "sticky", "--policy", "sticky", "--json")

    plain = json.loads(run("replay", trace, *options).stdout)

    assert [each["policy"] for each in plain["policies"]] == ["sticky", "round_robin"]
    assert json.loads(run("replay", str(packed), *options).stdout) == {
        **plain,
        "file": "trace.jsonl.gz",
    }


def test_speed_and_prefill_rate_change_the_wait(trace: str) -> None:
    """One node that needs 1.5 s for the first two, which come at once."""

    def slowest(*options: str) -> float:
        done = run("replay", trace, "--nodes", "1", "--policy", "hash", "--json", *options)
        ttft: float = json.loads(done.stdout)["policies"][0]["ttft_p99"]
        return ttft

    assert slowest("--prefill-rate", "1024") == 1.5
    assert slowest("--prefill-rate", "1024", "--speed", "10") == 1.5
    assert slowest("--prefill-rate", "2048") == 0.75


def test_the_table_shows_each_policy_and_marks_the_frontier(trace: str) -> None:
    done = run("replay", trace, "--nodes", "2", "--blocks", "3", "--policy", "all")

    assert done.returncode == 0
    everything = done.stdout.splitlines()
    lines = everything[everything.index("20 requests, 2 nodes, each of 3 blocks of 512 tokens.") :]
    assert "One cache of 6 blocks would hit 92.50% of all blocks." in lines
    (sticky,) = (line for line in lines if " sticky " in line)
    assert " ".join(sticky.split()) == "* sticky 90.00% 0.973 0.0 1.00 0.013 0.000 0.128"
    for name in CONTESTANTS:
        assert sum(name in line.split() for line in lines) == 1
    assert max(map(len, lines)) <= 82


def test_the_light_load_needs_no_trace() -> None:
    done = run("replay", "--load", "light", "--policy", "hash", "--json")

    assert json.loads(done.stdout)["requests"] == 2_400


def test_with_a_fleet_the_one_cache_has_the_blocks_of_all_nodes(trace: str) -> None:
    done = run("replay", trace, "--nodes", "2", "--blocks", "1", "--policy", "hash", "--json")

    found = json.loads(done.stdout)
    assert (found["cached_tokens"], found["loss"]["eviction"]) == (9_728, 0)
    assert found["pooled_lru_hit_rate"] == 19 / 40


def test_fleets_of_several_sizes_are_compared(trace: str, tmp_path: Path) -> None:
    page = tmp_path / "fleets.html"
    fleets = ("--nodes", "1", "--nodes", "4")

    done = run("replay", trace, *fleets, "--policy", "random", "--json", "--html", str(page))

    found = json.loads(done.stdout)
    one, four = found["fleets"]
    assert (one["nodes"], four["nodes"]) == (1, 4)
    assert one["policies"][0]["hit_rate"] == 37 / 40 > four["policies"][0]["hit_rate"]
    assert found["policies"] == one["policies"]
    assert "Hit rate against number of nodes" in page.read_text()


def test_ctrl_c_leaves_out_the_policies_that_were_not_done(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes when the second policy begins: the replay and the first policy are whole."""
    make = CONTESTANTS["prefix"]

    def interrupted(nodes: Mapping[str, SimulatedNode]) -> Policy:
        signal.raise_signal(signal.SIGINT)
        return make(nodes)

    monkeypatch.setitem(cast("dict[str, MakePolicy]", CONTESTANTS), "prefix", interrupted)

    with pytest.raises(SystemExit) as ended:
        replay.main([trace, "--nodes", "2", "--policy", "all", "--json"], standalone_mode=False)

    out, err = capsys.readouterr()
    found = json.loads(out)
    assert ended.value.code == 130
    assert (found["partial"], found["requests"]) == (True, 20)
    assert [each["policy"] for each in found["policies"]] == ["sticky"]
    assert err == "warning: not all policies were simulated, Ctrl-C ended it\n"
