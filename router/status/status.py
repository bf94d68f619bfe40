"""What operators read of a router, whichever of its workers they ask."""

from __future__ import annotations

from itertools import chain
from typing import Any, TypeVar

import msgspec
from prometheus_client import CollectorRegistry, generate_latest

from prefix_cache.errors import UnknownRoute
from router.decisions import Decisions
from router.dispatcher import Dispatcher
from router.metrics import FleetMetrics
from router.status.conversations import (
    MAX_CONVERSATIONS_SHOWN,
    ConversationCounts,
    Recent,
    accounts_of,
    conversation_document,
    latest,
    recent,
)
from router.status.counts import Counts, counted
from router.status.explanations import Explanation, explain
from router.status.nodes import nodes_document
from router.status.scrape import ByWorker, Family, families
from router.turn import ConversationKey
from router.workers.asking import ask_others
from router.workers.mailbox import Seat

Document = dict[str, Any]
Accounts = list[tuple[ConversationKey, ConversationCounts]]
A = TypeVar("A")


class _CountsAsked(msgspec.Struct, tag=0):
    pass


class _RecentAsked(msgspec.Struct, tag=1):
    limit: int


class _AccountsAsked(msgspec.Struct, tag=2):
    keys: list[ConversationKey]


class _DecisionAsked(msgspec.Struct, tag=3):
    request_id: str


class _FamiliesAsked(msgspec.Struct, tag=4):
    pass


_Question = _CountsAsked | _RecentAsked | _AccountsAsked | _DecisionAsked | _FamiliesAsked

_decode = msgspec.msgpack.Decoder(_Question).decode
_encode = msgspec.msgpack.encode


class Status:
    """Tells what the router knows.

    With a ``seat`` the other workers are asked for what each knows alone; who does not answer in
    time is left out, and that is said.  ``registry`` has the metrics of this process.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        decisions: Decisions,
        registry: CollectorRegistry,
        seat: Seat | None = None,
    ) -> None:
        self.registry = registry
        self._dispatcher = dispatcher
        self._decisions = decisions
        self._fleet = FleetMetrics(dispatcher)
        self._seat = seat

    async def metrics(self) -> bytes:
        """Everything, in the text format of Prometheus."""
        shared = generate_latest(self._fleet)
        if self._seat is None:
            return shared + generate_latest(self.registry)
        said = await self._ask_others(_FamiliesAsked(), list[Family])
        said[self._seat.index] = families(self.registry)
        return shared + generate_latest(ByWorker(said, self._seat.count))

    async def nodes(self) -> Document:
        """Every node, and the sums over all turns served."""
        counts, answered = await self._counts()
        return nodes_document(self._dispatcher, counts) | {"workers": self._workers(answered)}

    async def counts(self) -> Counts:
        """What was counted of each node, and of all turns."""
        return (await self._counts())[0]

    async def conversations(self, limit: int) -> Document:
        """The ``limit`` conversations used last, latest first, each with its last turns.

        At most ``MAX_CONVERSATIONS_SHOWN``; the ``limit`` in the document is the one that held.
        ``remembered`` is the most that one worker does.
        """
        limit = min(limit, MAX_CONVERSATIONS_SHOWN)
        ledger = self._dispatcher.ledger
        used = [recent(ledger, limit)]
        used += (await self._ask_others(_RecentAsked(limit), Recent)).values()
        keys = latest(used, limit)
        # A worker may have served turns of them that are not among its own latest.
        said = await self._ask_others(_AccountsAsked(keys), Accounts)
        accounts: dict[ConversationKey, ConversationCounts] = {}
        for told in [accounts_of(ledger, keys), *said.values()]:
            for key, counts in told:
                if key in accounts:
                    accounts[key].add(counts)
                else:
                    accounts[key] = counts
        return {
            "conversations": [
                conversation_document(self._dispatcher, key, accounts[key])
                for key in keys
                if key in accounts
            ],
            "limit": limit,
            "remembered": max(each.remembered for each in used),
            "pinned": len(self._dispatcher.conversations),
            "workers": self._workers(1 + len(said)),
        }

    async def explanation(self, request_id: str) -> Explanation:
        """How a request was decided, at whatever worker.  Raises UnknownRoute."""
        try:
            return explain(self._decisions.find(request_id))
        except UnknownRoute:
            said = await self._ask_others(_DecisionAsked(request_id), list[Explanation])
            for explanation in chain.from_iterable(said.values()):
                return explanation
            raise

    def answer(self, question: bytes) -> bytes:
        """Answer another worker from what this one knows."""
        return _encode(self._answer(_decode(question)))

    def _answer(self, asked: _Question) -> object:
        match asked:
            case _CountsAsked():
                return counted(self._dispatcher)
            case _RecentAsked():
                return recent(self._dispatcher.ledger, asked.limit)
            case _AccountsAsked():
                return accounts_of(self._dispatcher.ledger, asked.keys)
            case _DecisionAsked():
                try:
                    return [explain(self._decisions.find(asked.request_id))]
                except UnknownRoute:
                    return []
            case _FamiliesAsked():
                return families(self.registry)

    async def _counts(self) -> tuple[Counts, int]:
        said = await self._ask_others(_CountsAsked(), Counts)
        counts = counted(self._dispatcher)
        for each in said.values():
            counts.add(each)
        return counts, 1 + len(said)

    async def _ask_others(self, question: _Question, answer: type[A]) -> dict[int, A]:
        if self._seat is None:
            return {}
        said = await ask_others(self._seat, _encode(question))
        return {worker: msgspec.msgpack.decode(each, type=answer) for worker, each in said.items()}

    def _workers(self, answered: int) -> Document:
        return {"count": 1 if self._seat is None else self._seat.count, "answered": answered}
