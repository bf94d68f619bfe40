"""One side of a comparison that cannot share a process with the other: a process of its own.

It imports nothing that is not Python's, because it also runs where a peer is installed.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable


class Clock:
    """Times the works of one round by name; ``medians`` are in microseconds."""

    def __init__(self) -> None:
        self._samples: defaultdict[str, list[float]] = defaultdict(list)

    def time(self, name: str, work: Callable[..., object], *arguments: object) -> None:
        """Do ``work`` and keep how long it took."""
        start = time.perf_counter()
        work(*arguments)
        self._samples[name].append((time.perf_counter() - start) * 1e6)

    def medians(self) -> dict[str, float]:
        """Median time of each work.

        The first fifth of its calls does not count: the other side had the processor before, and
        until the caches are warm again a call is half as slow again as the later ones.
        """
        return {
            name: statistics.median(taken[len(taken) // 5 :])
            for name, taken in self._samples.items()
        }


def serve_rounds(play: Callable[[Clock], None]) -> None:
    """For each line of input play a round and print its medians as JSON."""
    for _ in sys.stdin:
        clock = Clock()
        play(clock)
        print(json.dumps(clock.medians()), flush=True)
