"""A scrape that shows the counts of each worker beside those of the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class Family(msgspec.Struct, array_like=True):
    """What one worker says of one metric."""

    name: str
    meaning: str
    kind: str
    samples: list[tuple[str, dict[str, str], float]]


def families(collector: Collector) -> list[Family]:
    """Return what there is now."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, sample.labels, sample.value) for sample in metric.samples],
        )
        for metric in collector.collect()
    ]


class ByWorker(Collector):
    """What those of ``num_workers`` said who answered; each sample with the label ``worker``.

    It is a label rather than a sum: so a counter begins anew when its worker does, which
    Prometheus allows for, and does not fall when one worker does not answer.
    """

    def __init__(self, said: Mapping[int, list[Family]], num_workers: int) -> None:
        self._said = said
        self._num_workers = num_workers

    def collect(self) -> Iterator[Metric]:
        """Return everything, for a scrape."""
        yield GaugeMetricFamily(
            "prefix_cache_router_workers", "Processes that share the port.", self._num_workers
        )
        yield GaugeMetricFamily(
            "prefix_cache_router_workers_answering",
            "Those of them that this scrape tells of.",
            len(self._said),
        )
        metrics: dict[str, Metric] = {}
        for worker, told in sorted(self._said.items()):
            for family in told:
                metric = metrics.get(family.name)
                if metric is None:
                    metric = Metric(family.name, family.meaning, family.kind)
                    metrics[family.name] = metric
                for name, labels, value in family.samples:
                    metric.add_sample(name, {**labels, "worker": str(worker)}, value)
        yield from metrics.values()
