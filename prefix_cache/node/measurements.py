"""What is measured while the node serves; docs/metrics.md says what each means."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Gauge, Histogram
from prometheus_client.registry import Collector

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)
_OPERATIONS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Measurements:
    """Instruments of one node, in no registry yet."""

    def __init__(self) -> None:
        self.request_seconds = Histogram(
            "prefix_cache_request_duration_seconds",
            "Time a unary call took in the node.",
            ["method"],
            buckets=_SECONDS,
            registry=None,
        )
        self._step_seconds = Histogram(
            "prefix_cache_session_step_duration_seconds",
            "Time a step of a session took in the node.",
            buckets=_SECONDS,
            registry=None,
        )
        self._step_operations = Histogram(
            "prefix_cache_session_step_operations",
            "Operations in a step of a session.",
            buckets=_OPERATIONS,
            registry=None,
        )
        self.sessions = Gauge("prefix_cache_sessions", "Open sessions.", registry=None)
        self.watchers = Gauge("prefix_cache_watchers", "Open watches.", registry=None)

    @contextmanager
    def step(self, operations: int) -> Iterator[None]:
        """Measure one step of a session, however it ends."""
        self._step_operations.observe(operations)
        with self._step_seconds.time():
            yield

    def __iter__(self) -> Iterator[Collector]:
        yield self.request_seconds
        yield self._step_seconds
        yield self._step_operations
        yield self.sessions
        yield self.watchers
