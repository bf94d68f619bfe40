"""Rotary position embeddings: a token's position as rotations of its queries and keys.

Dimension ``i`` of a head turns together with dimension ``i + head_dim / 2`` (the layout of
Hugging Face).  Where a checkpoint pairs neighbours instead, ``half_split`` reorders its weights.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class LinearScaling:
    """Positions are divided by ``factor``."""

    factor: float

    def scale(self, frequencies: Tensor) -> Tensor:
        """Return the scaled frequencies."""
        return frequencies / self.factor


@dataclass(frozen=True, slots=True)
class Llama3Scaling:
    """Low frequencies are divided by ``factor``, high ones stay, those between are blended.

    A frequency is low (high) where its wave is longer (shorter) than ``original_max_position``
    divided by ``low_freq_factor`` (``high_freq_factor``).
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position: int

    def __post_init__(self) -> None:
        if self.high_freq_factor <= self.low_freq_factor:
            raise InvalidArgument(
                f"high_freq_factor is {self.high_freq_factor}, "
                f"expected more than low_freq_factor {self.low_freq_factor}",
                high_freq_factor=self.high_freq_factor,
            )

    def scale(self, frequencies: Tensor) -> Tensor:
        """Return the scaled frequencies."""
        turns = self.original_max_position * frequencies / (2 * math.pi)
        width = self.high_freq_factor - self.low_freq_factor
        share = ((turns - self.low_freq_factor) / width).clamp(0, 1)
        return share * frequencies + (1 - share) * frequencies / self.factor


@dataclass(frozen=True, slots=True)
class FrequencyDivisors:
    """Each of the ``head_dim / 2`` frequencies is divided by a number of its own."""

    divisors: tuple[float, ...]

    def scale(self, frequencies: Tensor) -> Tensor:
        """Return the scaled frequencies.  Raises InvalidArgument where there are not as many."""
        if len(self.divisors) != len(frequencies):
            raise InvalidArgument(
                f"{len(self.divisors)} divisors of frequencies, expected {len(frequencies)}",
                divisors=len(self.divisors),
            )
        return frequencies / torch.tensor(self.divisors, dtype=frequencies.dtype)


RopeScaling = LinearScaling | Llama3Scaling | FrequencyDivisors


def rope_frequencies(head_dim: int, theta: float, scaling: RopeScaling | None) -> Tensor:
    """Return the ``head_dim / 2`` angles, float32, by which one position turns each pair."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    frequencies = theta**-exponents
    return (scaling.scale(frequencies) if scaling else frequencies).float()


def rotations(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines for ``positions`` [T], each float32 of [T, 1, head_dim / 2]."""
    angles = positions.float()[:, None, None] * frequencies
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Return ``heads`` [T, H, head_dim] turned by the rotations of their tokens, same dtype."""
    first, second = heads.float().chunk(2, dim=-1)
    turned = (first * cosines - second * sines, second * cosines + first * sines)
    return torch.cat(turned, dim=-1).to(heads.dtype)


def half_split(weight: Tensor, num_heads: int) -> Tensor:
    """Return a projection [H * head_dim, in] whose rotated pairs were neighbours, reordered."""
    rows, columns = weight.shape
    pairs = weight.view(num_heads, rows // num_heads // 2, 2, columns)
    return pairs.transpose(1, 2).reshape(rows, columns)
