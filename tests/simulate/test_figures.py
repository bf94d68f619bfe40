"""The figures: what they compare with the paper, and what that comes to."""

from __future__ import annotations

import math

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.simulate.figures import NUMBERS, Comparison, Experiment, Figure, figure


def ours(made: Figure) -> dict[str, float]:
    return {one.what: one.ours for one in made.comparisons}


def test_all_figures_that_a_simulation_answers_are_there() -> None:
    assert NUMBERS == (2, 3, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 25, 26, 27)


def test_the_speed_of_a_kernel_is_not_simulated() -> None:
    with pytest.raises(InvalidArgument, match="figure 24 is the speed of an attention kernel"):
        figure(24, Experiment())


def test_a_figure_that_is_none_names_those_that_are() -> None:
    with pytest.raises(InvalidArgument, match="no figure 5; expected one of 2, 3, 12"):
        figure(5, Experiment())


@pytest.mark.parametrize(
    ("ours", "low", "high", "unit", "verdict"),
    [
        (0.205, 0.204, 0.204, "%", "as told"),
        (0.98, 0.963, 0.963, "%", "1.7 points above"),
        (3.3, 2.7, 8.0, "x", "as told"),
        (2.4, 2.7, 8.0, "x", "11 % below"),
        (10.0, 2.7, 8.0, "x", "25 % above"),
    ],
)
def test_a_difference_is_told_from_the_nearer_end_of_the_papers_range(
    ours: float, low: float, high: float, unit: str, verdict: str
) -> None:
    one = Comparison("it", ours, low, high, unit, "because")  # type: ignore[arg-type]
    assert one.verdict == verdict
    assert one.as_json()["why"] == (None if verdict == "as told" else "because")


def test_memory_is_used_as_the_paper_measured() -> None:
    made = figure(3, Experiment())
    assert made.published == "Figure 2"
    for allocator, share in {
        "reserve_max": 0.204,
        "pow2": 0.268,
        "oracle": 0.382,
        "paged": 0.963,
    }.items():
        assert ours(made)[f"tokens, {allocator}"] == pytest.approx(share, abs=0.03)
    for _allocator, *shares in made.rows:
        assert sum(share for share in shares if isinstance(share, float)) == pytest.approx(1)


def test_as_many_requests_run_as_in_the_paper() -> None:
    batched = ours(figure(16, Experiment()))
    assert batched["requests batched, reserve_max"] == pytest.approx(7.0, rel=0.05)
    assert batched["requests batched, oracle"] == pytest.approx(13.62, rel=0.1)
    assert 2 < batched["requests batched, paged"] / batched["requests batched, oracle"] < 3
    assert 4 < batched["requests batched, paged"] / batched["requests batched, reserve_max"] < 6


def test_samples_save_what_the_prompts_share_of_memory_lets_them() -> None:
    saved = ours(figure(20, Experiment()))
    for width in (2, 4, 6):
        assert saved[f"alpaca, {width} samples"] == pytest.approx(
            0.12 * (width - 1) / width, abs=0.03
        )


def test_beams_save_up_to_55_percent() -> None:
    saved = ours(figure(21, Experiment()))
    assert saved["alpaca, 2 beams"] == pytest.approx(0.376, abs=0.02)  # fitted
    assert saved["alpaca, 4 beams"] == pytest.approx(0.531, abs=0.04)
    assert saved["alpaca, 6 beams"] == pytest.approx(0.552, abs=0.04)


def test_swap_becomes_cheaper_than_recompute_from_blocks_of_16_tokens_on() -> None:
    made = figure(26, Experiment())
    cheaper = {size: swap < recompute for size, recompute, swap, *_ in made.rows}  # type: ignore[operator]
    assert cheaper == {1: False, 2: False, 4: False, 8: False, 16: True, 32: True, 64: True}
    assert made.notes[0] == "Swap is as cheap as recompute from blocks of 16 tokens on."


def test_blocks_of_16_tokens_are_near_the_best() -> None:
    served = {size: most for size, _, most, _ in figure(25, Experiment()).rows}
    assert all(isinstance(rate, float) for rate in served.values())
    best = max(float(rate or math.nan) for rate in served.values())
    assert float(served[16] or math.nan) > 0.95 * best
    assert float(served[1] or math.nan) < 0.7 * best


def test_equal_seeds_make_equal_figures() -> None:
    assert figure(2, Experiment(7)) == figure(2, Experiment(7))
    assert figure(12, Experiment(7)) != figure(12, Experiment(8))
