"""Servers on paper: what they hold, and how long a step takes."""

from __future__ import annotations

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.simulate.experiment import allocator, server
from tests.simulate.loads import opt_13b


@pytest.mark.parametrize(
    ("model", "card", "num_gpus", "num_slots", "paper"),
    [
        ("opt-13b", "a100-40g", 1, 15_805, 15_700),
        ("opt-66b", "a100-40g", 4, 9_824, 9_700),
        ("opt-175b", "a100-80g", 8, 57_064, 60_100),
    ],
)
def test_the_papers_servers_hold_as_many_tokens_as_it_says(
    model: str, card: str, num_gpus: int, num_slots: int, paper: int
) -> None:
    on = server(model, card, num_gpus)
    assert on.num_slots == num_slots
    assert on.num_slots == pytest.approx(paper, rel=0.06)


def test_decoding_is_bound_by_memory() -> None:
    """25.7 GB of weights and 819,200 bytes a token, at 0.8 x 1,555 GB/s; 5 ms for all else."""
    weights_s = 2 * 12_853_473_280 / (0.8 * 1_555e9)
    alone = opt_13b().step_s(new_tokens=1, context_tokens=500)
    assert alone == pytest.approx(0.005 + weights_s + 500 * 819_200 / (0.8 * 1_555e9))
    many = opt_13b().step_s(new_tokens=30, context_tokens=30 * 500)
    assert 30 / many > 15 / alone


def test_computing_a_prompt_is_bound_by_arithmetic() -> None:
    """2 x 12.85 B operations for each of 1,000 tokens and more for attention, at 156 TFLOP/s."""
    seconds = opt_13b().prefill_s(1_000)
    assert seconds == pytest.approx(0.005 + 25.9e12 / (0.5 * 312e12), rel=0.02)


def test_blocks_of_16_make_reading_kv_a_quarter_slower() -> None:
    whole, blocks = (
        opt_13b().step_s(new_tokens=1, context_tokens=10_000, block_size=size)
        for size in (None, 16)
    )
    assert blocks - whole == pytest.approx(0.25 * 10_000 * 819_200 / (0.8 * 1_555e9))


def test_swapping_small_blocks_takes_many_copies() -> None:
    """Two copies of 10 us for each of 40 layers and block; 25 GB/s."""
    kv_s = 256 * 819_200 / 25e9
    assert opt_13b().swap_s(256, 16) == pytest.approx(16 * 80 * 10e-6 + kv_s)
    assert opt_13b().swap_s(256, 1) == pytest.approx(256 * 80 * 10e-6 + kv_s)


@pytest.mark.parametrize(
    ("model", "card", "message"),
    [
        ("gemma-3-27b", "h200", "windows"),
        ("opt-13b", "rtx4090", "weights do not fit"),
        ("opt-13b", "a100-30g", "unknown GPU"),
        ("opt-14b", "h100", "unknown model"),
    ],
)
def test_what_cannot_be_served_is_told(model: str, card: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        server(model, card)


def test_a_request_that_never_fits_is_told_before_anything_runs() -> None:
    with pytest.raises(InvalidArgument, match="room for 15805 tokens"):
        server("opt-13b", "a100-40g", max_length=16_000)


def test_a_block_larger_than_memory_is_told() -> None:
    with pytest.raises(InvalidArgument, match="larger than all memory"):
        allocator("paged", opt_13b(), block_size=20_000)
