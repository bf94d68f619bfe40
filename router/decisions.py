"""Decisions of the past, by request id, for whoever asks why."""

from __future__ import annotations

from collections import OrderedDict

from prefix_cache.errors import UnknownRoute
from router.picker import Decision

# Of a decision among more nodes, those are kept that say why: the chosen one, the home that was
# left, the one that was claimed to hold the most, and the cheapest.
MAX_CANDIDATES = 16


class Decisions:
    """The last ``max_decisions`` decisions.

    At most about 4 KiB each: names and costs, nothing of the prompt.
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
    costs, candidates, home = decision.costs, decision.candidates, decision.moved_from

    def held(index: int) -> tuple[int, float]:
        return candidates[index].cached_tokens, -sum(costs[index])

    every = range(len(candidates))
    first = {decision.index, max(every, key=held)}
    first |= {index for index in every if candidates[index].node.name == home}
    kept = sorted(
        every, key=lambda index: (index != decision.index, index not in first, sum(costs[index]))
    )[:MAX_CANDIDATES]
    return Decision(
        decision.prompt_tokens,
        decision.is_hashable,
        0,
        decision.reason,
        [candidates[i] for i in kept],
        [costs[i] for i in kept],
        decision.terms,
        sorted(decision.left_out, key=lambda each: each[0].name != home)[:MAX_CANDIDATES],
        home,
        decision.lost_tokens,
    )
