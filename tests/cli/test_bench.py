"""``bench``: that it measures what it says, not how fast this machine is."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

import pytest

from prefix_cache import BlockCache, Identity
from prefix_cache.cli.bench.baseline import NaiveBlockCache
from prefix_cache.cli.bench.harness import Row, Spread
from prefix_cache.cli.bench.report import print_rows
from tests.cli.commands import run


@pytest.fixture(scope="module")
def found() -> Any:
    """What one round of the benchmark says."""
    done = run("bench", "--rounds", "1", "--json")
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_every_case_has_both_sides(found: Any) -> None:
    assert found["rounds"] == 1
    assert [case["case"] for case in found["cases"]] == [
        "index: turn, 8,192 tokens cached",
        "index: turn, 512 blocks evicted",
        "index: match 8,192 tokens",
        "index: append 256 x 1 token",
        "node, TCP: turn, 8,192 cached",
        "node, unix: turn, 8,192 cached",
    ]
    for case in found["cases"]:
        for side in (case["baseline"], case["ours"]):
            assert 0 < side["min"] <= side["median"] <= side["max"]
        assert case["ratio"] == case["baseline"]["median"] / case["ours"]["median"]
        assert case["unit"] == "us"


def test_the_table_fits_80_columns(found: Any, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row(
            case["case"],
            case["part"],
            case["unit"],
            Spread(**case["baseline"]),
            Spread(**case["ours"]),
        )
        for case in found["cases"]
    ]
    print_rows("microseconds", rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert sum("index: " in line or "node, " in line for line in lines) == 6


def test_the_baseline_finds_and_evicts_what_the_index_does() -> None:
    """Else the comparison would be one of different work."""
    who = Identity(model="m")
    ours, naive = BlockCache(40, 16), NaiveBlockCache(40, 16)
    draw = random.Random(1)
    for _ in range(500):
        length = draw.randint(1, 200)
        prompt = struct.pack(f"<{length}I", *(draw.choice([0, 0, 0, 1]) for _ in range(length)))
        assert len(naive.match(who, prompt)) * 16 == ours.match(who, prompt).num_cached_tokens
        sequence, naive_sequence = ours.acquire(who, prompt), naive.acquire(who, prompt)
        ours.commit(sequence, length)
        naive.commit(naive_sequence, length)
        ours.release(sequence)
        naive.release(naive_sequence)
    assert ours.stats().evicted_blocks > 1000
