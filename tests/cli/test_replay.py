"""``prefix-cache replay``: JSON, table, and what it refuses."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from prefix_cache.replay.policy_comparison import CONTESTANTS
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
    assert [each["policy"] for each in found["policies"]] == list(CONTESTANTS)
    assert found["pooled_lru_hit_rate"] == 37 / 40
    assert (found["requests"], found["nodes"], found["blocks"]) == (20, 2, 3)
    sticky = found["policies"][0]
    assert sticky == {
        "policy": "sticky",
        "hit_rate": 0.9,
        "uncached_tokens": 2048,
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

    plain = run("replay", trace, *options)

    assert [each["policy"] for each in json.loads(plain.stdout)["policies"]] == [
        "sticky",
        "round_robin",
    ]
    assert run("replay", str(packed), *options).stdout == plain.stdout


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
    lines = done.stdout.splitlines()
    assert lines[0] == "20 requests, 2 nodes, each of 3 blocks of 512 tokens."
    assert "One cache of 6 blocks would hit 92.50% of all blocks." in lines
    (sticky,) = (line for line in lines if " sticky " in line)
    assert " ".join(sticky.split()) == "* sticky 90.00% 0.973 0.0 1.00 0.013 0.000 0.128"
    for name in CONTESTANTS:
        assert sum(name in line.split() for line in lines) == 1
    assert max(map(len, lines)) <= 82


def test_the_light_load_needs_no_trace() -> None:
    done = run("replay", "--load", "light", "--policy", "hash", "--json")

    assert json.loads(done.stdout)["requests"] == 2_400


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "give either a TRACE or --load"),
        ([__file__, "--load", "light"], "give either a TRACE or --load"),
        ([__file__], "test_replay.py, line 1: expected JSON, but Extra data at column 3"),
        ([__file__, "--policy", "best"], "unknown policy 'best'; expected all, sticky, prefix,"),
        ([__file__, "--nodes", "0"], "0 is not in the range"),
        ([__file__, "--blocks", "0"], "0 is not in the range"),
        ([__file__, "--speed", "0"], "0.0 is not in the range"),
        ([__file__, "--event-lag", "-1"], "-1.0 is not in the range"),
        ([__file__, "--speed", "nan"], "nan is no number"),
        (["no-such-file"], "'no-such-file' does not exist"),
    ],
)
def test_bad_usage_exits_with_2_and_says_what_is_wrong(
    arguments: list[str], complaint: str
) -> None:
    done = run("replay", *arguments)

    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
