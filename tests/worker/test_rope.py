from __future__ import annotations

import math

import pytest
import torch

from prefix_cache.errors import InvalidArgument
from prefix_cache.worker.rope import (
    FrequencyDivisors,
    LinearScaling,
    Llama3Scaling,
    half_split,
    rope_frequencies,
    rotate,
    rotations,
)


def test_frequencies_fall_from_one_by_a_constant_factor() -> None:
    assert rope_frequencies(8, 10_000.0, None).tolist() == pytest.approx([1, 0.1, 0.01, 0.001])


def test_linear_scaling_divides_every_frequency() -> None:
    scaled = rope_frequencies(8, 10_000.0, LinearScaling(4.0))
    assert scaled.tolist() == pytest.approx([0.25, 0.025, 0.0025, 0.00025])


def test_llama3_scaling_leaves_high_frequencies_and_divides_low_ones() -> None:
    """At 128 positions the four frequencies turn 20.4, 2.04, 0.204 and 0.0204 times."""
    scaled = rope_frequencies(8, 10_000.0, Llama3Scaling(8.0, 1.0, 4.0, 128))
    share = (128 * 0.1 / (2 * math.pi) - 1.0) / (4.0 - 1.0)
    blended = share * 0.1 + (1 - share) * 0.1 / 8
    assert 0.0125 < blended < 0.1
    assert scaled.tolist() == pytest.approx([1.0, blended, 0.01 / 8, 0.001 / 8])


def test_each_frequency_may_have_a_divisor_of_its_own() -> None:
    scaled = rope_frequencies(8, 10_000.0, FrequencyDivisors((1.0, 2.0, 4.0, 8.0)))
    assert scaled.tolist() == pytest.approx([1.0, 0.05, 0.0025, 0.000125])


def test_scaling_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"high_freq_factor is 1.0, expected more than low"):
        Llama3Scaling(8.0, 1.0, 1.0, 128)
    with pytest.raises(InvalidArgument, match="2 divisors of frequencies, expected 4"):
        rope_frequencies(8, 10_000.0, FrequencyDivisors((1.0, 2.0)))


def test_a_quarter_turn_takes_the_first_half_to_the_second() -> None:
    cosines, sines = rotations(torch.tensor([1]), torch.tensor([math.pi / 2, 0.0]))
    turned = rotate(torch.tensor([[[1.0, 2.0, 3.0, 4.0]]]), cosines, sines)
    assert turned.flatten().tolist() == pytest.approx([-3.0, 2.0, 1.0, 4.0])


def test_products_of_rotated_vectors_depend_on_the_distance_of_positions_only() -> None:
    frequencies = rope_frequencies(16, 10_000.0, None)
    query, key = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(1))

    def product(query_at: int, key_at: int) -> float:
        turned = [
            rotate(vector, *rotations(torch.tensor([at]), frequencies))
            for vector, at in ((query, query_at), (key, key_at))
        ]
        return float((turned[0] * turned[1]).sum())

    assert product(1007, 1003) == pytest.approx(product(7, 3), abs=1e-3)
    assert product(7, 3) != pytest.approx(product(7, 4), abs=1e-3)


def test_rows_of_neighbouring_pairs_are_reordered_head_by_head() -> None:
    weight = torch.arange(8.0).view(8, 1)
    assert half_split(weight, 2).flatten().tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
