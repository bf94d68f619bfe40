"""The tables and warnings of ``demo``, of plays that are known."""

from __future__ import annotations

import pytest

from prefix_cache.cli.demo.conversations_report import print_report, print_warnings
from prefix_cache.replay.player import Play, PlayedTurn, UnservedTurn
from prefix_cache.replay.savings import Savings
from prefix_cache.replay.sources import Source, mission
from prefix_cache.replay.turns import TokenizedConversation

NAMES = [f"a conversation with a long name, number {n}" for n in range(40)]


def played(*names: str) -> Play:
    """Two turns of each conversation; the second finds most of the first."""
    first = [PlayedTurn(name, 1, 1_234_567, 0, "n1") for name in names]
    second = [PlayedTurn(name, 2, 3_456_789, 1_234_560, "n1") for name in names]
    return Play(first + second)


def report(capsys: pytest.CaptureFixture[str], *names: str) -> list[str]:
    source = Source(
        "chats.jsonl",
        "UTF-8 bytes",
        tuple(TokenizedConversation(name, ((b"", b""),) * 2) for name in names),
    )
    play = played(*names)
    print_report(source, Savings(play, play, play))
    return capsys.readouterr().out.splitlines()


def test_the_mission_is_a_row_for_each_turn_and_each_way(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompts = (1200, 1900, 2600, 3300, 4000, 4700, 5400, 6100, 6800, 7500)
    cached = (0, 1696, 2400, 3088, 3792, 4496, 5200, 5888, 6592, 7296)
    sticky, no_cache = (
        Play([PlayedTurn("mission", n + 1, prompts[n], found[n], "n1") for n in range(10)])
        for found in (cached, (0,) * 10)
    )
    print_report(mission(), Savings(sticky, sticky, no_cache))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [line.split() for line in lines]
    assert ["10", "7,500", "7,296", "204", "n1", "█████████▋"] in cells
    assert ["sticky", "43,500", "40,448", "3,052", "93.0%", "14.3x", "█████████▎"] in cells
    assert ["no", "cache", "43,500", "0", "43,500", "0.0%", "1.0x", "··········"] in cells
    assert "100.0% of the later turns went to their conversation's node." in lines


def test_long_reports_are_cut_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(capsys, *NAMES)
    assert "chats.jsonl - 40 conversations, 80 turns, tokens are UTF-8 bytes" in lines
    assert "... 20 more rows; all turns are in --json" in lines


@pytest.mark.parametrize("columns", [20, 40, 60, 79, 80, 200])
def test_numbers_are_whole_on_any_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = report(capsys, *NAMES[:2])
    cells = [line.split() for line in lines]
    assert ["2", "3,456,789", "1,234,560", "2,222,229", "n1"] in [row[:5] for row in cells]
    assert ["2", "2", "6,913,578", "2,469,120", "4,444,458", "35.7%"] in [row[:6] for row in cells]
    assert ["no", "cache", "9,382,712", "2,469,120", "6,913,592"] in [row[:5] for row in cells]
    if columns >= 66:
        assert max(map(len, lines)) <= columns


def test_bars_give_way_before_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def first_row(columns: int) -> tuple[str, int]:
        """Its name, and the length of its bar."""
        monkeypatch.setenv("COLUMNS", str(columns))
        row, _ = (line for line in report(capsys, *NAMES[:2]) if line.startswith(" a conv"))
        return row.split("   ")[0].strip(), row.count("·")

    assert first_row(100) == ("a conversation with a l…", 10)
    assert first_row(80) == ("a conversation with a l…", 0)
    assert first_row(60) == ("a conversat…", 0)


def test_what_a_terminal_would_act_on_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    lines = report(capsys, "red \x1b[31m", "left \u202e right")
    assert any("red \\x1b[31m" in line for line in lines)
    assert any("left \\u202e right" in line for line in lines)
    refused = UnservedTurn("red \x1b[31m", 1, 7, "no \x07 room")
    print_warnings(Savings(Play([], [refused]), Play(), Play()))
    assert capsys.readouterr().err == (
        "warning: sticky: 1 turn not served; the first, turn 1 of red \\x1b[31m: no \\x07 room\n"
    )


def test_what_did_not_go_as_planned_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    refused = UnservedTurn("a", 2, 3_456_789, "no room")
    sticky = played("a")
    no_cache = Play(sticky.turns[:1], [refused], retried_turns=1, lost_tokens=1500)
    print_warnings(Savings(sticky, sticky, no_cache))
    assert capsys.readouterr().err.splitlines() == [
        "warning: no_cache: nodes failed; 1 turn went to another node, 1,500 committed tokens "
        "were lost",
        "warning: no_cache: 1 turn not served; the first, turn 2 of a: no room",
        "warning: the totals are those of the 1 turn that were served in all three ways",
    ]
