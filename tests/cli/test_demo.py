"""``demo``: the whole of it, with real processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.commands import run


def test_the_mission_prefills_3052_of_43500_tokens() -> None:
    done = run("demo", "--only", "mission", "--json")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert [turn["prefilled_tokens"] for turn in found["turns"]] == [
        *(1200, 204, 200, 212, 208, 204, 200, 212, 208, 204)
    ]
    assert [turn["turn"] for turn in found["turns"]] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert len({turn["node"] for turn in found["turns"]}) == 1
    assert found["sticky_turns"] == 1.0
    assert found["totals"] == {
        "prompt_tokens": 43_500,
        "cached_tokens": 40_448,
        "prefilled_tokens": 3_052,
        "hit_rate": 40_448 / 43_500,
        "saved_ratio": 43_500 / 3_052,
    }
    assert found["no_cache"] == {
        "prompt_tokens": 43_500,
        "cached_tokens": 0,
        "prefilled_tokens": 43_500,
        "hit_rate": 0.0,
        "saved_ratio": 1.0,
    }
    # With three nodes in turn, a turn finds what was there three turns before.
    assert found["round_robin"]["prefilled_tokens"] == 16_940
    assert found["inputs"] == {"mission": "made-up ids"}


def test_both_inputs_are_played_without_options_and_sticky_beats_round_robin() -> None:
    """F039: a control arm must lose, else the hits may be luck."""
    found = json.loads(run("demo", "--json").stdout)
    assert found["inputs"] == {"mission": "made-up ids", "chats": "UTF-8 bytes"}
    assert len(found["turns"]) == 59
    assert len({turn["conversation"] for turn in found["turns"]}) == 12
    assert found["sticky_turns"] == 1.0
    assert found["round_robin"]["hit_rate"] + 0.15 < found["totals"]["hit_rate"]
    assert found["no_cache"]["cached_tokens"] == 0
    assert found["no_cache"]["prompt_tokens"] == found["totals"]["prompt_tokens"]


def test_a_file_is_played_and_a_turn_that_does_not_fit_is_told(tmp_path: Path) -> None:
    """30 blocks hold 480 tokens: the long question is refused, everything else is played."""
    path = tmp_path / "chats.jsonl"
    chats = [
        {"id": "one \x1b[31m", "messages": [{"role": "user", "content": "Why?"}] * 2},
        {"id": "two", "messages": [{"role": "user", "content": "Why? " * 300}]},
        {"id": "3" * 1025, "messages": [{"role": "user", "content": "Why?"}]},
    ]
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    done = run("demo", "--file", str(path), "--nodes", "1", "--num-blocks", "30")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "chats.jsonl - 3 conversations, 4 turns, tokens are UTF-8 bytes" in lines
    cells = [line.split() for line in lines]
    assert [row[:4] for row in cells if row[:1] == ["one"]] == [["one", "\\x1b[31m", "1", "35"]]
    assert [row[:3] for row in cells if row[:1] == ["line"]] == [["line", "3", "1"]]
    warnings = done.stderr.splitlines()
    assert [line.split(": ")[1] for line in warnings] == ["sticky", "round_robin", "no_cache"]
    for line in warnings:
        assert ": 1 turn not served; the first, turn 1 of two: " in line


def test_when_nothing_is_served_the_demo_has_failed() -> None:
    done = run("demo", "--only", "mission", "--num-blocks", "10", "--nodes", "1")
    assert done.returncode == 1
    assert "warning: sticky: 10 turns not served" in done.stderr


def test_file_and_only_exclude_each_other() -> None:
    done = run("demo", "--file", __file__, "--only", "chats")
    assert done.returncode == 2
    assert "give one of --file and --only" in done.stderr


def test_a_tokenizer_file_that_is_none_is_bad_input() -> None:
    pytest.importorskip("tokenizers", reason="the extra `tokenizers` is not installed")
    done = run("demo", "--only", "chats", "--tokenizer", __file__)
    assert done.returncode == 2
    assert "test_demo.py: no tokenizer" in done.stderr
