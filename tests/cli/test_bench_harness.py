"""The harness of the benchmarks, on samples that are known."""

from __future__ import annotations

import pytest

from prefix_cache.cli.bench.harness import Case, Row, Sample, Side, Spread, measure
from prefix_cache.cli.bench.report import print_rows


def scripted(log: list[str], side: str, values: list[float]) -> Side:
    """Samples of two parts, the second twice the first."""
    remaining = iter(values)

    async def sample() -> Sample:
        log.append(side)
        value = next(remaining)
        return {"find": value, "take": 2 * value}

    return sample


async def test_sides_take_turns_and_their_first_samples_do_not_count() -> None:
    log: list[str] = []
    case = Case(
        "turn", scripted(log, "naive", [900, 8, 20, 10]), scripted(log, "index", [900, 2, 5, 3])
    )
    assert await measure(case, rounds=3) == [
        Row("turn", "find", "us", Spread(10, 8, 20), Spread(3, 2, 5)),
        Row("turn", "take", "us", Spread(20, 16, 40), Spread(6, 4, 10)),
    ]
    assert log == ["naive", "index"] * 4


def test_the_ratio_says_how_many_times_less_ours_is() -> None:
    row = Row("block", "", "bytes", Spread(300, 290, 310), Spread(100, 99, 101))
    assert row.as_json() == {
        "case": "block",
        "part": "",
        "unit": "bytes",
        "baseline": {"median": 300, "min": 290, "max": 310},
        "ours": {"median": 100, "min": 99, "max": 101},
        "ratio": 3.0,
    }


def test_the_parts_of_a_case_stand_below_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    spread = Spread(1234.5, 99.9, 2000)
    print_rows(
        "us",
        [
            Row("turn", "find", "us", spread, Spread(4, 3, 5)),
            Row("turn", "take", "us", spread, spread),
            Row("round trip", "", "us", spread, spread),
        ],
    )
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines[0] == ["us", "baseline", "ours", "ratio"]
    assert lines[2:] == [
        ["turn"],
        ["find", "1,234", "(99.9-2,000)", "4.00", "(3.00-5.00)", "309x"],
        ["take", "1,234", "(99.9-2,000)", "1,234", "(99.9-2,000)", "1.00x"],
        ["round", "trip", "1,234", "(99.9-2,000)", "1,234", "(99.9-2,000)", "1.00x"],
    ]
