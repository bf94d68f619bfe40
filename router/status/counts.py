"""What was counted of the nodes and of all turns; each worker counts its own."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from router.dispatcher import Dispatcher
from router.nodes import Node

SumsByName = dict[str, int]
"""The fields of ``Sums``."""


class NodeCounts(msgspec.Struct):
    """What was counted of one node."""

    turns: int = 0
    prompt_tokens: int = 0
    told_tokens: int = 0
    cached_tokens: int = 0
    failures: int = 0
    lost_tokens: int = 0

    def add(self, more: NodeCounts) -> None:
        """Add what another worker counted of the node."""
        self.turns += more.turns
        self.prompt_tokens += more.prompt_tokens
        self.told_tokens += more.told_tokens
        self.cached_tokens += more.cached_tokens
        # Each worker saw the same failures, and lost the same pins.
        self.failures = max(self.failures, more.failures)
        self.lost_tokens = max(self.lost_tokens, more.lost_tokens)


class Counts(msgspec.Struct):
    """Sums over all turns served, and the counts of each node by its name."""

    sums: SumsByName
    nodes: dict[str, NodeCounts]

    def add(self, more: Counts) -> None:
        """Add what another worker counted."""
        add_sums(self.sums, more.sums)
        for name, counts in more.nodes.items():
            self.nodes.setdefault(name, NodeCounts()).add(counts)


def counted(dispatcher: Dispatcher) -> Counts:
    """Return what this worker counted."""
    return Counts(
        asdict(dispatcher.ledger.sums), {node.name: _of(node) for node in dispatcher.nodes()}
    )


def add_sums(sums: SumsByName, more: SumsByName) -> None:
    """Add ``more`` to ``sums``."""
    for name, value in more.items():
        sums[name] += value


def sums_document(sums: SumsByName) -> dict[str, Any]:
    """Sums with the share of the tokens of which engines told; None while none told of any."""
    return sums | {"hit_rate": share(sums["delivered"], sums["told_tokens"])}


def share(part: int, whole: int) -> float | None:
    """Share of the whole; None of nothing."""
    return part / whole if whole else None


def _of(node: Node) -> NodeCounts:
    return NodeCounts(
        node.turns,
        node.prompt_tokens,
        node.told_tokens,
        node.cached_tokens,
        node.failures,
        node.lost_tokens,
    )
