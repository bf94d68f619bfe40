"""The nodes as operators read them: what all workers know alike, and what each counted."""

from __future__ import annotations

from typing import Any

from router.dispatcher import Dispatcher
from router.nodes import Node
from router.status.counts import Counts, NodeCounts, share, sums_document


def nodes_document(dispatcher: Dispatcher, counts: Counts) -> dict[str, Any]:
    """Every node, and the sums over all turns served."""
    return {
        "nodes": [_node(dispatcher, node, counts.nodes[node.name]) for node in dispatcher.nodes()],
        "policies": {name: pool.config.policy for name, pool in dispatcher.pools.items()},
        "conversations": len(dispatcher.conversations),
        "sums": sums_document(counts.sums),
    }


def _node(dispatcher: Dispatcher, node: Node, counts: NodeCounts) -> dict[str, Any]:
    held = dispatcher.holdings(node)
    return {
        "name": node.name,
        "pool": node.pool,
        "address": node.address,
        "url": node.url,
        "state": node.state.name,
        "models": sorted(node.models),
        "in_flight": node.in_flight,
        "in_flight_tokens": node.in_flight_tokens,
        "queued_prefill": node.queued_prefill,
        "decoding": node.decoding,
        "reported_running": node.reported_running,
        "conversations": held.conversations,
        "committed_tokens": held.committed_tokens,
        "turns": counts.turns,
        "prompt_tokens": counts.prompt_tokens,
        "told_tokens": counts.told_tokens,
        "cached_tokens": counts.cached_tokens,
        "hit_rate": share(counts.cached_tokens, counts.told_tokens),
        "failures": counts.failures,
        "lost_tokens": counts.lost_tokens,
    }
