"""Hit rate against cache size, as points to print and to draw."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np


class Point(NamedTuple):
    """The share of the prompt tokens that a cache of ``blocks`` blocks has.

    ``error`` is twice the standard error of an estimate, None where the rate is exact.
    """

    blocks: int
    hit_rate: float
    error: float | None = None


def cache_sizes(smallest: int, largest: int, count: int) -> list[int]:
    """Return about ``count`` sizes to look at, evenly spread by their ratio."""
    if not smallest:  # there was no request
        return []
    spread = np.geomspace(smallest, max(largest, smallest), count)
    return sorted(set(np.rint(spread).astype(int).tolist()))


def smallest_for(
    share: float, smallest: int, largest: int, hit_rate: Callable[[int], float]
) -> int:
    """Return the smallest cache that has ``share`` of what the largest hits."""
    wanted = share * hit_rate(largest)
    while smallest < largest:
        middle = (smallest + largest) // 2
        if hit_rate(middle) >= wanted:
            largest = middle
        else:
            smallest = middle + 1
    return largest
