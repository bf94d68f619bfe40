"""Why a turn went where it did: each candidate with every part of its cost, and in words."""

from __future__ import annotations

import msgspec

from prefix_cache.client import RouteReason
from router.picker import Decision


class ExplainedCandidate(msgspec.Struct):
    """A node that could take the turn; ``cost`` by the names of its parts, ``sum`` of these."""

    node: str
    cached_tokens: int
    is_home: bool
    cost: dict[str, float]
    sum: float


class LeftOut(msgspec.Struct):
    """A node that could not."""

    node: str
    why: str


class Explanation(msgspec.Struct):
    """A decision as operators read it."""

    node: str
    reason: str
    in_words: str
    prompt_tokens: int
    hashable: bool
    promised_tokens: int
    available_tokens: int
    runner_up: str | None
    moved_from: str | None
    lost_tokens: int
    candidates: list[ExplainedCandidate]
    left_out: list[LeftOut]


def explain(decision: Decision) -> Explanation:
    """Explain how a turn was decided."""
    runner_up = decision.runner_up
    return Explanation(
        node=decision.node.name,
        reason=decision.reason.name.lower(),
        in_words=in_words(decision),
        prompt_tokens=decision.prompt_tokens,
        hashable=decision.is_hashable,
        promised_tokens=decision.promised_tokens,
        available_tokens=decision.available_tokens,
        runner_up=runner_up.node.name if runner_up else None,
        moved_from=decision.moved_from or None,
        lost_tokens=decision.lost_tokens,
        candidates=[
            ExplainedCandidate(
                candidate.node.name,
                candidate.cached_tokens,
                candidate.is_home,
                dict(zip(decision.terms, cost, strict=True)),
                sum(cost),
            )
            for candidate, cost in zip(decision.candidates, decision.costs, strict=True)
        ],
        left_out=[LeftOut(node.name, why) for node, why in decision.left_out],
    )


def in_words(decision: Decision) -> str:
    """Say why the node was chosen, in one sentence."""
    name = decision.node.name
    because = _compared(decision)
    if decision.reason is RouteReason.PINNED:
        return f"{name} is its home and {because}"
    if decision.reason is RouteReason.NEW:
        return f"no home yet: {name} {because}"
    return f"its home {decision.moved_from} {_why_left(decision)}: {name} {because}"


def _why_left(decision: Decision) -> str:
    for node, why in decision.left_out:
        if node.name == decision.moved_from:
            return why
    chosen = sum(decision.costs[decision.index])
    for candidate, cost in zip(decision.candidates, decision.costs, strict=True):
        if candidate.node.name == decision.moved_from:
            if not candidate.is_home:
                return "lost its cache"
            return "costs more" if sum(cost) > chosen else "costs no less"
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
