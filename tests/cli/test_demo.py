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


def test_the_tables_fit_a_plain_page_of_80_columns() -> None:
    done = run("demo", "--only", "mission", "--nodes", "1")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in done.stdout
    cells = [line.split() for line in lines]
    assert ["10", "7,500", "7,296", "204"] in [row[:4] for row in cells]
    assert ["sticky", "43,500", "40,448", "3,052", "93.0%", "14.3x"] in [row[:6] for row in cells]
    assert ["no", "cache", "43,500", "0", "43,500", "0.0%", "1.0x"] in [row[:7] for row in cells]
    assert "100.0% of the later turns went to their conversation's node." in lines


def test_a_file_is_played_with_its_own_names_and_without_cutting_numbers(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    question = {"role": "user", "content": "Why? " * 300}
    messages = {"messages": [question, {"role": "assistant", "content": "So."}, question]}
    chats = [{"id": f"a conversation with a long name, number {n}"} | messages for n in range(40)]
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    done = run("demo", "--file", str(path), "--nodes", "1")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert "chats.jsonl - 40 conversations, 80 turns, tokens are UTF-8 bytes" in lines
    assert "... 20 more rows; all turns are in --json" in lines
    cells = [line.split() for line in lines]
    assert ["2", "40", "122,920", "121,344", "1,576", "98.7%"] in [row[:6] for row in cells]
    assert "…" not in "".join(line for line in lines if "conversation with" not in line)


def test_a_malformed_file_is_named_with_its_line_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "Hi"}]}\n{"messages": 1}\n')
    done = run("demo", "--file", str(path))
    assert done.returncode == 2
    assert done.stderr == (
        f'error: {path}, line 2: expected "messages" or "conversations" with a list, got a number\n'
    )


def test_turns_that_do_not_fit_are_told() -> None:
    done = run("demo", "--only", "mission", "--num-blocks", "200", "--nodes", "1")
    assert done.returncode == 0
    sticky, _, no_cache = done.stderr.splitlines()  # one line each
    assert sticky.startswith("warning: sticky: 7 turns not served; the first, turn 4 of mission: ")
    assert no_cache.startswith("warning: no_cache: 7 turns not served; the first, turn 4 of ")


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
