"""How long prompts and answers are: distributions fitted to published means, or given lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Protocol

import numpy as np
import numpy.typing as npt

_STANDARD = NormalDist()
_QUADRATURE = 2_000
_ROUNDS = 60


class Lengths(Protocol):
    """Where the lengths of prompts and answers come from."""

    def draw(self, count: int, random: np.random.Generator) -> list[tuple[int, int]]:
        """Return ``count`` pairs of prompt and answer lengths in tokens, each at least 1."""
        ...


@dataclass(frozen=True)
class LogNormal:
    """Lengths from ``low`` to ``high`` tokens whose mean is ``mean``.

    Their logarithms are a normal distribution of deviation ``sigma``, cut off at both ends: as
    data sets are, from which what is too long was left out.
    """

    mean: float
    sigma: float
    low: int
    high: int

    def draw(self, count: int, random: np.random.Generator) -> npt.NDArray[np.int64]:
        """Return lengths in tokens."""
        return self._at(random.random(count), self._mu)

    @cached_property
    def _mu(self) -> float:
        """The mean of the logarithms with which the lengths have their mean, by bisection."""
        shares = (np.arange(_QUADRATURE) + 0.5) / _QUADRATURE
        low, high = np.log(self.low) - 5 * self.sigma, np.log(self.high) + 5 * self.sigma
        for _ in range(_ROUNDS):
            middle = (low + high) / 2
            if self._at(shares, middle).mean() < self.mean:
                low = middle
            else:
                high = middle
        return float(low)

    def _at(self, shares: npt.NDArray[np.float64], mu: float) -> npt.NDArray[np.int64]:
        """Return the lengths below which such shares of all are."""
        first, last = (
            _STANDARD.cdf((np.log(end) - mu) / self.sigma)
            for end in (self.low - 0.5, self.high + 0.5)
        )
        normal = np.array([_STANDARD.inv_cdf(first + share * (last - first)) for share in shares])
        lengths = np.exp(mu + self.sigma * normal).round().astype(np.int64)
        return np.clip(lengths, self.low, self.high)


@dataclass(frozen=True)
class Fitted:
    """Prompts and answers whose lengths have nothing to do with each other."""

    name: str
    prompt: LogNormal
    answer: LogNormal

    def draw(self, count: int, random: np.random.Generator) -> list[tuple[int, int]]:
        """Return pairs of prompt and answer lengths in tokens."""
        prompts, answers = self.prompt.draw(count, random), self.answer.draw(count, random)
        return list(zip(prompts.tolist(), answers.tolist(), strict=True))


@dataclass(frozen=True)
class Given:
    """Lengths as a file has them, one pair after the other, from the beginning again at its end."""

    pairs: Sequence[tuple[int, int]]

    def draw(self, count: int, random: np.random.Generator) -> list[tuple[int, int]]:
        """Return the first ``count`` pairs."""
        repeats = -(-count // len(self.pairs))
        return (list(self.pairs) * repeats)[:count]


# The means are those that the paper gives of what it drew; it cut off prompts above 1,024 tokens
# and what is above 2,048 with its answer.  The deviations are ours, chosen by the shape of its
# histograms: long and heavy-tailed here, short and narrow there.
SHAREGPT = Fitted("sharegpt", LogNormal(161.31, 1.3, 4, 1_024), LogNormal(337.99, 1.0, 4, 1_024))
ALPACA = Fitted("alpaca", LogNormal(19.31, 0.45, 4, 1_024), LogNormal(58.45, 0.9, 2, 1_024))
# Sentences to translate, of which the paper tells no lengths: about 25 words, of 1.4 tokens in
# English and 2 in German; chosen knowing what a shared prefix gained in the paper.
SENTENCES = Fitted("translation", LogNormal(35.0, 0.5, 4, 256), LogNormal(50.0, 0.5, 2, 256))

KNOWN_LENGTHS = {lengths.name: lengths for lengths in (SHAREGPT, ALPACA)}
