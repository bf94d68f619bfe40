"""What the proxy measures of itself; docs/metrics.md says what each means."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
)


class Measurements(Collector):
    """Counts of one proxy.  Kept as plain numbers: a request counts in a microsecond."""

    def __init__(self, open_connections: Callable[[], int]) -> None:
        self.answers: defaultdict[int, int] = defaultdict(int)
        """Answers to forwarded requests, by status."""
        self.cut = 0
        """Answers that were broken off."""
        self.clients_gone = 0
        """Requests whose client did not wait for the end of its answer."""
        self.stale_connections = 0
        """Kept connections that an engine closed as a request was on its way."""
        self.unavailable = 0
        """Answers of engines that they could not take a request, which went to another node."""
        self._open_connections = open_connections
        self._first_bytes = [0] * (len(_SECONDS) + 1)
        self._first_byte_sum = 0.0

    def first_byte(self, seconds: float) -> None:
        """Count the time from a whole request to the head of its answer."""
        self._first_bytes[bisect_left(_SECONDS, seconds)] += 1
        self._first_byte_sum += seconds

    def collect(self) -> Iterator[Metric]:
        """Return everything, for a scrape."""
        prefix = "prefix_cache_router_http_"
        answers = CounterMetricFamily(
            f"{prefix}answers", "Answers to forwarded requests.", labels=["status"]
        )
        for status, count in self.answers.items():
            answers.add_metric([str(status)], count)
        yield answers
        first_byte = HistogramMetricFamily(
            f"{prefix}first_byte_seconds", "Time to the head of an engine's answer."
        )
        buckets, total = [], 0
        for bound, count in zip([*map(str, _SECONDS), "+Inf"], self._first_bytes, strict=True):
            total += count
            buckets.append((bound, float(total)))
        first_byte.add_metric([], buckets, self._first_byte_sum)
        yield first_byte
        yield CounterMetricFamily(f"{prefix}cut", "Answers broken off.", self.cut)
        yield CounterMetricFamily(
            f"{prefix}clients_gone", "Requests whose client left.", self.clients_gone
        )
        yield CounterMetricFamily(
            f"{prefix}stale_connections",
            "Kept connections that an engine closed.",
            self.stale_connections,
        )
        yield CounterMetricFamily(
            f"{prefix}unavailable",
            "Answers 502, 503 and 504 of engines.",
            self.unavailable,
        )
        yield GaugeMetricFamily(
            f"{prefix}connections", "Connections of clients.", self._open_connections()
        )
