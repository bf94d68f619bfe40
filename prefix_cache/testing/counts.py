"""What a test engine counts, for ``/requests`` and for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Counts(msgspec.Struct):
    """Requests for an answer by how they went.

    ``cancelled`` are those whose client went away, ``failed`` those that a fault or a bad request
    ended.  ``prompt_tokens`` and ``cached_tokens`` are those of all prompts that were prefilled.
    """

    in_flight: int = 0
    served: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    last_path: str = ""
    last_headers: dict[str, str] = {}


def registry(counts: Counts) -> CollectorRegistry:
    """Return what a scrape collects."""
    collected = CollectorRegistry()
    collected.register(_Collected(counts))
    return collected


class _Collected(Collector):
    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        counts = self._counts
        yield GaugeMetricFamily(
            "prefix_cache_engine_in_flight", "Requests for an answer.", counts.in_flight
        )
        requests = CounterMetricFamily(
            "prefix_cache_engine_requests", "Requests by how they went.", labels=["outcome"]
        )
        for outcome in ("served", "cancelled", "failed"):
            requests.add_metric([outcome], getattr(counts, outcome))
        yield requests
        yield CounterMetricFamily(
            "prefix_cache_engine_prompt_tokens", "Tokens of prompts.", counts.prompt_tokens
        )
        yield CounterMetricFamily(
            "prefix_cache_engine_cached_tokens", "Those that were cached.", counts.cached_tokens
        )
