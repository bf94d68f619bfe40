"""That every benchmark runs, on a tiny scale; none is timed here."""

from __future__ import annotations

import pytest

from tests.bench.groups import GROUPS, measure_group
from tests.bench.peers import TARGETS
from tests.bench.scale import TINY
from tests.bench.side import Clock
from tests.bench.side_index import IndexSide

TURN = ["find", "acquire", "commit", "append", "release", "acquire to release"]


@pytest.mark.parametrize("name", GROUPS)
async def test_a_group_measures_both_sides_of_each_case(name: str) -> None:
    rows = [row.as_json() for row in await measure_group(name, TINY, rounds=1)]
    assert rows
    for row in rows:
        assert set(row) == {"case", "part", "unit", "baseline", "ours", "ratio"}
        assert row["unit"] == ("bytes" if "memory" in name else "us")
        for side in (row["baseline"], row["ours"]):
            assert 0 < side["min"] == side["median"] == side["max"]
        assert row["ratio"] == row["baseline"]["median"] / row["ours"]["median"]


async def test_turns_are_measured_step_by_step() -> None:
    rows = await measure_group("turns", TINY, rounds=1)
    assert len(rows) == 2 * 3 * 2 * 2 * len(TURN)
    assert {row.case for row in rows[:6]} == {"64 tokens, 0 % hit, empty pool, events off"}
    assert [row.part for row in rows[:6]] == TURN


def test_our_side_measures_what_is_compared_with_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.side_index.NUM_BLOCKS", 2_048)
    monkeypatch.setattr("tests.bench.side_index.REPEATS", 1)
    clock = Clock()
    IndexSide().play(clock)
    assert set(clock.medians()) == {target.ours for target in TARGETS}
