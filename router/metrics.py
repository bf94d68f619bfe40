"""A router's metrics for Prometheus; docs/metrics.md says what each means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from prefix_cache.client import NodeState
from router.claims.node_claims import NodeClaims
from router.directory import Directory
from router.dispatcher import Dispatcher
from router.nodes import Node
from router.prompts import BodyReader

_NODE_GAUGES: dict[str, tuple[str, Callable[[Node], float]]] = {
    "in_flight": ("Turns routed there and not over.", lambda node: node.in_flight),
    "in_flight_tokens": ("Prompt tokens of those turns.", lambda node: node.in_flight_tokens),
    "queued_prefill_tokens": ("Tokens that wait for prefill.", lambda node: node.queued_prefill),
    "exact_claims": (
        "Whether it tells which blocks it holds.",
        lambda node: _about(node, lambda claims: claims.exact),
    ),
    "tokenization_mismatch": (
        "Whether its engine makes other tokens than the router.",
        lambda node: _about(node, lambda claims: claims.tokens_differ),
    ),
}

_NODE_COUNTERS: dict[str, tuple[str, Callable[[Node], float]]] = {
    "turns": ("Turns served there.", lambda node: node.turns),
    "failures": ("Times the node failed.", lambda node: node.failures),
    "claims_forgotten": (
        "Times its engine had lost what was sent there.",
        lambda node: _about(node, lambda claims: claims.sent.times_forgotten),
    ),
}


def _about(node: Node, value: Callable[[NodeClaims], float]) -> float:
    return value(node.claims) if isinstance(node.claims, NodeClaims) else 0


def router_registry(
    dispatcher: Dispatcher,
    reader: BodyReader | None = None,
    directory: Directory | None = None,
) -> CollectorRegistry:
    """Return what the router counts; with several workers each counts its own.

    ``reader`` is that of its proxy and ``directory`` what it shares with others, where it has
    them.
    """
    registry = CollectorRegistry()
    registry.register(_Counted(dispatcher, reader, directory))
    return registry


class FleetMetrics(Collector):
    """How the nodes are and what load they have: all workers know it alike."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def collect(self) -> Iterator[Metric]:
        """Return everything, for a scrape."""
        nodes = list(self._dispatcher.nodes())
        by_state = _gauge("nodes", "Nodes by state.", labels=["pool", "state"])
        counts = Counter((node.pool, node.state) for node in nodes)
        for pool in self._dispatcher.pools:
            for state in NodeState:
                by_state.add_metric([pool, state.name.lower()], counts[pool, state])
        yield by_state
        yield from _of_nodes(nodes, _gauge, _NODE_GAUGES)
        pinned = len(self._dispatcher.conversations)
        yield _gauge("pins", "Conversations that have a home.", pinned)


class _Counted(Collector):
    """What the router counted since it started."""

    def __init__(
        self, dispatcher: Dispatcher, reader: BodyReader | None, directory: Directory | None
    ) -> None:
        self._dispatcher = dispatcher
        self._reader = reader
        self._directory = directory

    def collect(self) -> Iterator[Metric]:
        dispatcher, sums = self._dispatcher, self._dispatcher.ledger.sums
        yield from _of_nodes(list(dispatcher.nodes()), _counter, _NODE_COUNTERS)
        decisions = _counter("decisions", "Turns routed, by why to that node.", labels=["reason"])
        for reason, count in dispatcher.decisions_by_reason.items():
            decisions.add_metric([reason.name.lower()], count)
        yield decisions
        yield _counter("retries", "Turns routed again, to another node.", dispatcher.retries)
        yield _counter(
            "no_tokens", "Turns routed of which no cache could be asked.", dispatcher.unhashable
        )
        tokens = _counter("tokens", "Tokens of the prompts served.", labels=["kind"])
        for kind, count in (
            ("prompt", sums.prompt_tokens),
            ("told", sums.told_tokens),
            ("available", sums.available),
            ("promised", sums.promised),
            ("delivered", sums.delivered),
            ("prefilled", sums.prefilled),
        ):
            tokens.add_metric([kind], count)
        yield tokens
        losses = _counter("lost_tokens", "Tokens that no cache served.", labels=["loss"])
        for loss in ("unhashable", "held_by_nobody", "routed_elsewhere", "not_delivered"):
            losses.add_metric([loss], getattr(sums, loss))
        yield losses
        yield _counter(
            "turns_without_word",
            "Turns whose engine did not say how much was cached.",
            sums.turns_without_word,
        )
        if self._reader is not None:
            yield _counter(
                "not_tokenized",
                "Prompts known by their text, though their pool has a tokenizer.",
                self._reader.not_tokenized,
            )
        if self._directory is not None:
            yield from _of_redis(self._directory)


def _of_nodes(
    nodes: list[Node],
    make: Callable[..., CounterMetricFamily | GaugeMetricFamily],
    fields: Mapping[str, tuple[str, Callable[[Node], float]]],
) -> Iterator[Metric]:
    for name, (meaning, value) in fields.items():
        metric = make(name, meaning, labels=["pool", "node"])
        for node in nodes:
            metric.add_metric([node.pool, node.name], value(node))
        yield metric


def _of_redis(directory: Directory) -> Iterator[Metric]:
    counts = directory.counts
    yield _gauge("redis_available", "Whether the Redis answers.", directory.is_available)
    failures = _counter("redis_failures", "What went wrong with the Redis.", labels=["kind"])
    failures.add_metric(["timeout"], counts.timeouts)
    failures.add_metric(["error"], counts.errors)
    failures.add_metric(["dropped_put"], counts.dropped_puts)
    yield failures


def _gauge(
    name: str, meaning: str, value: float | None = None, labels: list[str] | None = None
) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"prefix_cache_router_{name}", meaning, value, labels)


def _counter(
    name: str, meaning: str, value: float | None = None, labels: list[str] | None = None
) -> CounterMetricFamily:
    return CounterMetricFamily(f"prefix_cache_router_{name}", meaning, value, labels)
