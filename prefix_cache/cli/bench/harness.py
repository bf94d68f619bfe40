"""Measures two ways of doing the same work, taking turns in one process."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

Sample = Mapping[str, float]
"""What each part of the work cost, once; a work of one part calls it ``""``."""

Side = Callable[[], Awaitable[Sample]]
"""Takes one sample of one way of doing the work."""

Work = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Case:
    """``ours`` against ``baseline``, whose samples have the same parts, in ``unit``."""

    name: str
    baseline: Side
    ours: Side
    unit: str = "us"


@dataclass(frozen=True)
class Spread:
    """The samples of one side."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """Return the spread of at least one value."""
        samples = list(values)
        return cls(statistics.median(samples), min(samples), max(samples))


@dataclass(frozen=True)
class Row:
    """One part of a case, measured."""

    case: str
    part: str
    unit: str
    baseline: Spread
    ours: Spread

    @property
    def ratio(self) -> float:
        """How many times less ours costs than the baseline, by the medians."""
        return self.baseline.median / self.ours.median

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "ratio": self.ratio}


class Stopwatch:
    """Adds up the time of the parts of a work that is done several times."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._since = 0.0

    def start(self) -> None:
        """Time runs from here to the next lap."""
        self._since = time.perf_counter()

    def lap(self, part: str) -> None:
        """What has run since the last lap was this part."""
        self._seconds[part] += time.perf_counter() - self._since
        self._since = time.perf_counter()

    def sample(self, times: int) -> Sample:
        """Microseconds of each part, done once."""
        return {part: seconds / times * 1e6 for part, seconds in self._seconds.items()}


def repeated(work: Work, times: int) -> Side:
    """Return a side that does ``work`` so many times for one sample."""

    async def side() -> Sample:
        watch = Stopwatch()
        watch.start()
        for _ in range(times):
            await work()
        watch.lap("")
        return watch.sample(times)

    return side


async def measure(case: Case, rounds: int) -> list[Row]:
    """Sample both sides ``rounds`` times, in turns; the first sample of each only warms up."""
    baseline, ours = [], []
    for _ in range(rounds + 1):
        baseline.append(await case.baseline())
        ours.append(await case.ours())
    return [
        Row(
            case.name,
            part,
            case.unit,
            Spread.of(sample[part] for sample in baseline[1:]),
            Spread.of(sample[part] for sample in ours[1:]),
        )
        for part in ours[0]
    ]
