"""What the router says of itself, as documents for JSON: conversations, nodes, decisions."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from typing import Any

from prefix_cache.client import RouteReason
from router.dispatcher import Dispatcher
from router.ledger import Account, Sums
from router.nodes import Node
from router.picker import Decision
from router.turn import ConversationKey

Document = dict[str, Any]

MAX_CONVERSATIONS_SHOWN = 1_000
"""More at once would hold up turns, and are more than anybody reads."""

# Of a tenant or a conversation's id, so many characters are shown.
_KEY_CHARACTERS = 256


def conversations_document(dispatcher: Dispatcher, limit: int) -> Document:
    """The ``limit`` conversations used last, latest first, each with its last turns.

    At most ``MAX_CONVERSATIONS_SHOWN``; the ``limit`` in the document is the one that held.
    """
    accounts = dispatcher.ledger.accounts
    limit = min(limit, MAX_CONVERSATIONS_SHOWN)
    return {
        "conversations": [
            _conversation(dispatcher, key, accounts[key])
            for key in islice(reversed(accounts), limit)
        ],
        "limit": limit,
        "remembered": len(accounts),
        "pinned": len(dispatcher.conversations),
    }


def nodes_document(dispatcher: Dispatcher) -> Document:
    """Every node, and the sums over all turns served."""
    return {
        "nodes": [_node(dispatcher, node) for node in dispatcher.nodes()],
        "policies": {name: pool.config.policy for name, pool in dispatcher.pools.items()},
        "conversations": len(dispatcher.conversations),
        "sums": _sums(dispatcher.ledger.sums),
    }


def explanation_document(decision: Decision) -> Document:
    """How a turn was decided: each candidate with every part of its cost, and why in words."""
    runner_up = decision.runner_up
    return {
        "node": decision.node.name,
        "reason": decision.reason.name.lower(),
        "in_words": in_words(decision),
        "prompt_tokens": decision.prompt_tokens,
        "hashable": decision.is_hashable,
        "promised_tokens": decision.promised_tokens,
        "available_tokens": decision.available_tokens,
        "runner_up": runner_up.node.name if runner_up else None,
        "moved_from": decision.moved_from or None,
        "lost_tokens": decision.lost_tokens,
        "candidates": [
            {
                "node": candidate.node.name,
                "cached_tokens": candidate.cached_tokens,
                "is_home": candidate.is_home,
                "cost": dict(zip(decision.terms, cost, strict=True)),
                "sum": sum(cost),
            }
            for candidate, cost in zip(decision.candidates, decision.costs, strict=True)
        ],
        "left_out": [{"node": node.name, "why": why} for node, why in decision.left_out],
    }


def in_words(decision: Decision) -> str:
    """Say why the node was chosen, in one sentence."""
    name = decision.node.name
    if decision.reason is RouteReason.PINNED:
        return f"{name} is the conversation's home"
    because = _compared(decision)
    if decision.reason is RouteReason.NEW:
        return f"no home yet: {name} {because}"
    return f"its home {decision.moved_from} {_why_left(decision)}: {name} {because}"


def _why_left(decision: Decision) -> str:
    for node, why in decision.left_out:
        if node.name == decision.moved_from:
            return why
    for candidate in decision.candidates:
        if candidate.node.name == decision.moved_from:
            return "costs more" if candidate.is_home else "was restarted and holds nothing of it"
    return "is gone"


def _compared(decision: Decision) -> str:
    runner_up = decision.runner_up
    if runner_up is None:
        return "is the only one that can take it"
    lowest = sum(decision.costs[decision.index])
    other = sum(decision.costs[decision.candidates.index(runner_up)])
    if other == lowest:
        return f"costs as little as {runner_up.node.name} ({lowest:.1f}) and wins the tie"
    return f"costs least ({lowest:.1f}), next is {runner_up.node.name} ({other:.1f})"


def _conversation(dispatcher: Dispatcher, key: ConversationKey, account: Account) -> Document:
    pin = dispatcher.conversations.get(key)
    return {
        "tenant": key.tenant[:_KEY_CHARACTERS],
        "conversation": key.conversation[:_KEY_CHARACTERS],
        "home": pin.home.node if pin else None,
        "sums": _sums(account.sums),
        "last_turns": [turn._asdict() | {"prefilled": turn.prefilled} for turn in account.last],
    }


def _sums(sums: Sums) -> Document:
    return asdict(sums) | {"hit_rate": _share(sums.delivered, sums.told_tokens)}


def _node(dispatcher: Dispatcher, node: Node) -> Document:
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
        "turns": node.turns,
        "prompt_tokens": node.prompt_tokens,
        "told_tokens": node.told_tokens,
        "cached_tokens": node.cached_tokens,
        "hit_rate": _share(node.cached_tokens, node.told_tokens),
        "failures": node.failures,
        "lost_tokens": node.lost_tokens,
    }


def _share(part: int, whole: int) -> float | None:
    """Share of the tokens of which engines told; None while none told of any."""
    return part / whole if whole else None
