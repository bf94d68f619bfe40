"""The two FP8 formats: E4M3 up to 448 with 3 fraction bits, E5M2 up to 57,344 with 2."""

from __future__ import annotations

import torch
from torch import Tensor

_TOP_EXPONENT_BIT = 0x4000
_E4M3_IN_FLOAT16 = 256


def quantise(values: Tensor, scale: Tensor | float, dtype: torch.dtype) -> Tensor:
    """Return ``values / scale`` rounded to ``dtype``, to even where two are as near.

    The caller has seen to it that nothing lies beyond the format's largest value: torch would
    clip it, or store infinity.
    """
    return (values.float() / scale).to(dtype)


def dequantise(stored: Tensor, scale: Tensor | float, dtype: torch.dtype) -> Tensor:
    """Return ``stored * scale`` in ``dtype``; ``stored`` holds no NaN."""
    if stored.dtype == torch.float8_e4m3fn:
        values, scale = _float16_of_e4m3(stored).float(), scale * _E4M3_IN_FLOAT16
    else:
        values = stored.float()
    return values.mul_(scale).to(dtype)


def _float16_of_e4m3(stored: Tensor) -> Tensor:
    """Return the values / 256, by moving their bits: torch takes ten times as long on a CPU.

    A float16 has one exponent bit more, and a bias of 15 instead of 7.
    """
    bits = stored.view(torch.int8).to(torch.int16)  # the sign is in the upper bits, too
    return bits.bitwise_left_shift_(7).bitwise_and_(~_TOP_EXPONENT_BIT).view(torch.float16)


def largest(dtype: torch.dtype) -> float:
    """Return the largest value that the format holds."""
    return torch.finfo(dtype).max
