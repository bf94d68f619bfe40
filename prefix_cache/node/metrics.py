"""A node's metrics for Prometheus; docs/metrics.md says what each means."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from prefix_cache import __version__
from prefix_cache.index import Stats
from prefix_cache.node.node import Node


def node_registry(node: Node) -> CollectorRegistry:
    """Return what a scrape of ``node`` collects."""
    registry = CollectorRegistry()
    registry.register(_State(node))
    for instrument in node.measurements:
        registry.register(instrument)
    return registry


class _State(Collector):
    """What the node knows of itself at any time."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        node, stats = self._node, self._node.cache.stats()
        yield CounterMetricFamily(
            "prefix_cache_queries",
            "Prompt tokens of acquired sequences, but for resumed ones.",
            stats.query_tokens,
        )
        yield CounterMetricFamily(
            "prefix_cache_hits", "Those of them that were cached.", stats.hit_tokens
        )
        yield CounterMetricFamily(
            "prefix_cache_recomputed_tokens",
            "Tokens of preempted sequences that had to be computed again.",
            stats.recomputed_tokens,
        )
        blocks = GaugeMetricFamily("prefix_cache_blocks", "Blocks by state.", labels=["state"])
        blocks.add_metric(["free"], stats.free)
        blocks.add_metric(["cached"], stats.cached)
        blocks.add_metric(["private"], stats.private)
        yield blocks
        yield GaugeMetricFamily(
            "prefix_cache_evictable_blocks", "Cached blocks that nobody uses.", stats.evictable
        )
        yield CounterMetricFamily(
            "prefix_cache_evicted_blocks", "Cached blocks evicted.", stats.evicted_blocks
        )
        yield from self._host_tier(stats)
        yield GaugeMetricFamily(
            "prefix_cache_live_sequences", "Open sequences.", stats.live_sequences
        )
        yield CounterMetricFamily(
            "prefix_cache_leases_expired", "Sequences whose lease ran out.", node.leases_expired
        )
        yield CounterMetricFamily(
            "prefix_cache_client_limit_refusals",
            "Calls and operations refused since one client may not hold more.",
            node.quotas.refusals,
        )
        yield CounterMetricFamily(
            "prefix_cache_watcher_snapshots",
            "Snapshots that watchers were given.",
            node.log.snapshots_given,
        )
        yield InfoMetricFamily("prefix_cache_node", "What the node is.", self._info())

    def _host_tier(self, stats: Stats) -> Iterator[Metric]:
        slots = GaugeMetricFamily(
            "prefix_cache_host_blocks", "Slots on the host by state.", labels=["state"]
        )
        slots.add_metric(["free"], stats.host_free)
        slots.add_metric(["cached"], stats.host_cached)
        slots.add_metric(["held"], stats.host_blocks - stats.host_free - stats.host_cached)
        yield slots
        yield CounterMetricFamily(
            "prefix_cache_offloaded_blocks",
            "Evicted blocks moved to the host.",
            stats.offloaded_blocks,
        )
        yield CounterMetricFamily(
            "prefix_cache_rejected_offloads",
            "Evicted blocks that the host had no slot for.",
            stats.rejected_offloads,
        )
        yield CounterMetricFamily(
            "prefix_cache_loaded_tokens",
            "Tokens loaded from the host, for resumed sequences too.",
            stats.loaded_tokens,
        )
        yield GaugeMetricFamily(
            "prefix_cache_pending_copies",
            "Answers whose copies are not acknowledged.",
            stats.pending_copies,
        )
        withdrawn = CounterMetricFamily(
            "prefix_cache_withdrawn_copies",
            "Answers whose copies will not be made.",
            labels=["reason"],
        )
        for reason, count in self._node.withdrawn_copies.items():
            withdrawn.add_metric([reason], count)
        yield withdrawn

    def _info(self) -> dict[str, str]:
        config = self._node.config
        return {
            "name": config.name,
            "version": __version__,
            "model": config.model,
            "kv_dtype": config.kv_dtype,
            "block_size": str(config.block_size),
            "incarnation": str(self._node.incarnation),
        }
