"""Decisions of the past, by request id, for whoever asks why."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

from prefix_cache.errors import UnknownRoute
from router.picker import Decision

# Of a decision among more nodes, the cheapest are kept, the chosen one with them.
MAX_CANDIDATES = 16


class Decisions:
    """The last ``max_decisions`` decisions.

    About 2 KiB each: names and costs, nothing of the prompt.
    """

    def __init__(self, *, max_decisions: int) -> None:
        self._max_decisions = max_decisions
        self._decisions: OrderedDict[str, Decision] = OrderedDict()

    def __len__(self) -> int:
        return len(self._decisions)

    def keep(self, request_id: str, decision: Decision) -> None:
        """Keep the decision of a request; its last one, when it is decided again."""
        if len(decision.candidates) > MAX_CANDIDATES or len(decision.left_out) > MAX_CANDIDATES:
            decision = _trimmed(decision)
        if request_id in self._decisions:
            self._decisions.move_to_end(request_id)
        elif len(self._decisions) == self._max_decisions:
            self._decisions.popitem(last=False)
        self._decisions[request_id] = decision

    def find(self, request_id: str) -> Decision:
        """Return the decision of a request.  Raises UnknownRoute."""
        if request_id not in self._decisions:
            raise UnknownRoute(
                f"no decision of request {request_id[:256]!r} is known: the last "
                f"{self._max_decisions} are kept",
                request_id=request_id[:256],
            )
        return self._decisions[request_id]


def _trimmed(decision: Decision) -> Decision:
    costs, candidates = decision.costs, decision.candidates
    others = sorted(set(range(len(costs))) - {decision.index}, key=lambda i: sum(costs[i]))
    kept = [decision.index, *others[: MAX_CANDIDATES - 1]]
    return replace(
        decision,
        index=0,
        candidates=[candidates[i] for i in kept],
        costs=[costs[i] for i in kept],
        left_out=decision.left_out[:MAX_CANDIDATES],
    )
