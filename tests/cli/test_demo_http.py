"""``demo --http``: the whole of it, with real processes."""

from __future__ import annotations

import json

import pytest

from prefix_cache.cli.demo.http_report import print_report
from prefix_cache.replay.http_comparison import HttpSavings
from prefix_cache.replay.http_player import HttpTurn
from tests.cli.commands import run


def test_sticky_finds_more_and_answers_sooner_than_round_robin() -> None:
    done = run("demo", "--http", "--json")
    assert done.stderr == ""
    found = json.loads(done.stdout)
    settings = {name: found[name] for name in ("engines", "conversations", "turns")}
    assert settings == {"engines": 3, "conversations": 12, "turns": 6}
    sticky, round_robin = found["policies"]
    assert (sticky["policy"], round_robin["policy"]) == ("sticky", "round_robin")
    assert sticky["turns"] == round_robin["turns"] == 72
    assert sticky["prompt_tokens"] == round_robin["prompt_tokens"]
    assert sticky["prefilled_tokens"] == sticky["prompt_tokens"] - sticky["cached_tokens"]
    assert sticky["sticky_turns"] == 1.0
    assert sticky["hit_rate"] > 0.7
    assert round_robin["hit_rate"] + 0.1 < sticky["hit_rate"]
    assert sticky["ttft_mean"] < round_robin["ttft_mean"]


def savings(policy: str, *ttft_s: float, cached: int) -> HttpSavings:
    turns = [HttpTurn("chat", n, 1000, cached, "e1", ttft) for n, ttft in enumerate(ttft_s)]
    return HttpSavings.of(policy, turns)


def test_the_table_has_a_row_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(
        [
            savings("sticky", 0.3, 0.1, 0.2, cached=750),
            savings("round_robin", *[0.1] * 98, 0.5, 2.0, cached=500),
        ]
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [line.split() for line in lines]
    assert ["sticky", "200", "ms", "200", "ms", "300", "ms", "750", "75.0%", "███████▌··"] in cells
    assert cells[4][:9] == ["round", "robin", "123", "ms", "100", "ms", "500", "ms", "50,000"]
    assert lines[-1] == "With round robin its mean is 0.6 times that with sticky."


def test_options_of_the_other_demo_are_refused() -> None:
    for options in (["--only", "chats"], ["--window", "2"], ["--file", __file__]):
        done = run("demo", "--http", *options)
        assert done.returncode == 2
        assert "with --http there are --nodes and --json only" in done.stderr
