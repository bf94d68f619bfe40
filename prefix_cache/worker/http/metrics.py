"""A worker's metrics for Prometheus; docs/metrics.md says what each means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from prefix_cache import __version__
from prefix_cache.worker.request import RequestOutput
from prefix_cache.worker.setup import Worker

Outcome = Literal["served", "cancelled", "failed"]

_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)
_TOKENS = ("prompt", "cached", "loaded", "prefilled", "recomputed", "generated")


class ObservedRequest:
    """One request while it is handled; ``outcome`` is how it goes unless an exception ends it."""

    def __init__(self, first_token: Histogram) -> None:
        self.outcome: Outcome = "served"
        self._first_token = first_token
        self._has_token = False

    def output(self, output: RequestOutput) -> None:
        """Take note of what a step brought."""
        if output.first_token_s is not None and not self._has_token:
            self._has_token = True
            self._first_token.observe(output.first_token_s)


class RequestMetrics:
    """Requests by how they went, and what they took."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._outcomes = Counter(
            "prefix_cache_worker_requests",
            "Requests for an answer by how they went.",
            ["outcome"],
            registry=registry,
        )
        self._duration = Histogram(
            "prefix_cache_worker_request_duration_seconds",
            "What requests took, however they went.",
            buckets=_SECONDS,
            registry=registry,
        )
        self._first_token = Histogram(
            "prefix_cache_worker_first_token_seconds",
            "From the arrival of a request to its first token.",
            buckets=_SECONDS,
            registry=registry,
        )
        for outcome in get_args(Outcome):
            self._outcomes.labels(outcome)

    @contextmanager
    def observed(self) -> Iterator[ObservedRequest]:
        """Count the request that is handled in this context."""
        observed = ObservedRequest(self._first_token)
        try:
            with self._duration.time():
                yield observed
        except (asyncio.CancelledError, ConnectionResetError):  # its client is gone
            observed.outcome = "cancelled"
            raise
        except Exception:
            observed.outcome = "failed"
            raise
        finally:
            self._outcomes.labels(observed.outcome).inc()


class EngineMetrics(Collector):
    """What the engine counts, and what it is."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        """Return the values of now."""
        stats, pool = self._worker.engine.stats, self._worker.pool
        live = GaugeMetricFamily(
            "prefix_cache_worker_live_requests", "Requests under way by state.", labels=["state"]
        )
        live.add_metric(["running"], stats.running)
        live.add_metric(["waiting"], stats.waiting)
        yield live
        tokens = CounterMetricFamily(
            "prefix_cache_worker_tokens", "Tokens by kind.", labels=["kind"]
        )
        for kind in _TOKENS:
            tokens.add_metric([kind], getattr(stats, f"{kind}_tokens"))
        yield tokens
        yield CounterMetricFamily(
            "prefix_cache_worker_preemptions",
            "Requests put back for want of blocks.",
            stats.preemptions,
        )
        resumed = CounterMetricFamily(
            "prefix_cache_worker_resumed",
            "Sequences resumed, by what brought their KV back.",
            labels=["by"],
        )
        resumed.add_metric(["swap"], stats.resumed_by_swap)
        resumed.add_metric(["recompute"], stats.resumed_by_recompute)
        yield resumed
        yield CounterMetricFamily("prefix_cache_worker_steps", "Steps of the engine.", stats.steps)
        seconds = CounterMetricFamily(
            "prefix_cache_worker_step_seconds", "Seconds of the steps by part.", labels=["part"]
        )
        seconds.add_metric(["forward"], stats.forward_seconds)
        seconds.add_metric(["other"], stats.step_seconds - stats.forward_seconds)
        yield seconds
        memory = GaugeMetricFamily(
            "prefix_cache_worker_kv_bytes", "KV memory by place.", labels=["place"]
        )
        memory.add_metric(["device"], pool.num_bytes)
        memory.add_metric(["host"], pool.host_bytes)
        yield memory
        yield GaugeMetricFamily(
            "prefix_cache_worker_replaced",
            "1 once another worker has taken the node over, else 0.",
            self._worker.engine.is_replaced,
        )
        yield InfoMetricFamily(
            "prefix_cache_worker",
            "What the worker is.",
            {
                "model": self._worker.name,
                "version": __version__,
                "kv_dtype": pool.layout.dtype,
                "block_size": str(pool.layout.block_size),
                "num_blocks": str(pool.num_blocks),
                "host_blocks": str(pool.host_blocks),
            },
        )
