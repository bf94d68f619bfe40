"""The load of the nodes, counted over all workers of a router."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from router.decayed import DecayedSum
from router.fleet import Fleet
from router.nodes import Node

Load = tuple[int, int, int, int, float]
"""Of a node: in_flight, in_flight_tokens, queued_prefill, decoding, and recent prefill."""

_Counts = tuple[int, int, int, int]
_NONE: _Counts = (0, 0, 0, 0)


@dataclass(slots=True)
class _Told:
    """What one sibling told of one node."""

    counts: _Counts = _NONE
    recent_prefill: DecayedSum = field(default_factory=DecayedSum)


class SharedLoad:
    """Adds what siblings tell to the load of the nodes, and tells what is this worker's own.

    They tell their load as it is, not how it changed: what was missed is made good by what is
    told next.
    """

    def __init__(self, fleet: Fleet, clock: Callable[[], float]) -> None:
        self._fleet = fleet
        self._clock = clock
        self._told: dict[int, dict[Node, _Told]] = {}
        self._added: dict[Node, _Counts] = {}
        self._last: dict[Node, _Counts] = {}

    def changed(self) -> dict[str, Load]:
        """Return the own load, by name, of the nodes where it changed since it was told last."""
        return self._tell(
            node for node in self._nodes().values() if self._own(node) != self._last.get(node)
        )

    def everything(self) -> dict[str, Load]:
        """Return the own load of every node, by name; forgets those that have gone."""
        nodes = self._nodes().values()
        remembered: list[dict[Node, Any]] = [self._added, self._last, *self._told.values()]
        for known in remembered:
            for node in known.keys() - nodes:
                del known[node]
        return self._tell(nodes)

    def take(self, worker: int, loads: Mapping[str, Load]) -> None:
        """Take a sibling's load of some nodes."""
        told, nodes = self._told.setdefault(worker, {}), self._nodes()
        for name, load in loads.items():
            if node := nodes.get(name):
                self._replace(node, told.setdefault(node, _Told()), load[:4], load[4])

    def forget(self, worker: int) -> None:
        """Take a sibling for gone, and its load with it."""
        for node, told in self._told.pop(worker, {}).items():
            self._replace(node, told, _NONE, 0.0)

    def _tell(self, nodes: Iterable[Node]) -> dict[str, Load]:
        loads: dict[str, Load] = {}
        for node in nodes:
            own = self._last[node] = self._own(node)
            loads[node.name] = (*own, self._own_recent_prefill(node))
        return loads

    def _replace(self, node: Node, told: _Told, counts: _Counts, recent_prefill: float) -> None:
        in_flight, tokens, queued, decoding = (
            new - old for new, old in zip(counts, told.counts, strict=True)
        )
        node.in_flight += in_flight
        node.in_flight_tokens += tokens
        node.queued_prefill += queued
        node.decoding += decoding
        added = self._added.get(node, _NONE)
        self._added[node] = (
            added[0] + in_flight,
            added[1] + tokens,
            added[2] + queued,
            added[3] + decoding,
        )
        told.counts = counts
        now = self._clock()
        more_recent = recent_prefill - told.recent_prefill.value(now)
        told.recent_prefill.add(more_recent, now)
        node.recent_prefill.add(more_recent, now)

    def _own(self, node: Node) -> _Counts:
        added = self._added.get(node, _NONE)
        return (
            node.in_flight - added[0],
            node.in_flight_tokens - added[1],
            node.queued_prefill - added[2],
            node.decoding - added[3],
        )

    def _own_recent_prefill(self, node: Node) -> float:
        now = self._clock()
        told = (each[node].recent_prefill for each in self._told.values() if node in each)
        return node.recent_prefill.value(now) - sum(recent.value(now) for recent in told)

    def _nodes(self) -> dict[str, Node]:
        pools = self._fleet.pools.values()
        return {name: node for pool in pools for name, node in pool.nodes.items()}
