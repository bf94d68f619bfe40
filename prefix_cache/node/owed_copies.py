"""Copies between GPU and host that a client was told to make and has not acknowledged."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import islice

from prefix_cache.errors import UnknownCopy
from prefix_cache.index.results import Copies
from prefix_cache.node.node import Node, Withdrawal
from prefix_cache.node.quotas import Holding
from prefix_cache.v1 import node_pb2


class OwedCopies:
    """The copies that one owner still has to make: of a session, or of all unary calls together.

    Only that owner acknowledges them.  What it does not acknowledge in time is withdrawn, and so
    is what is left when the owner ends: their blocks and slots are used for something else then,
    and whoever comes late with them is told ``UnknownCopy``.

    The blocks that they load stay taken until then.  So they count as held by the client, also
    once their sequence has ended.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._timeouts: dict[int, asyncio.TimerHandle] = {}
        self._outliving: dict[int, tuple[Holding, int]] = {}

    def add(self, copy_id: int) -> None:
        """Wait for the copies of a reply; 0: it has none."""
        if copy_id:
            loop = asyncio.get_running_loop()
            self._timeouts[copy_id] = loop.call_later(
                self._node.config.copy_timeout_s, self._withdraw, copy_id, "timeout"
            )

    def outlive(self, copies: Copies, holding: Holding) -> None:
        """A sequence has ended: ``holding`` keeps the blocks of its ``copies`` that are owed."""
        if copies.copy_id in self._timeouts and copies.copy_id not in self._outliving:
            self._outliving[copies.copy_id] = holding, len(copies.loads)
            holding.blocks += len(copies.loads)

    def acknowledge(
        self, word: node_pb2.AcknowledgeCopiesRequest | node_pb2.AcknowledgeOperation
    ) -> None:
        """Take note that they were made, or never will be.  Raises ``UnknownCopy``."""
        self._forget(word.copy_id)
        if word.lost:
            self._node.withdraw(word.copy_id, "lost")
        else:
            self._node.cache.acknowledge(word.copy_id)

    def withdraw_some(self, count: int) -> bool:
        """Withdraw up to ``count`` of them, since the owner ends; return whether any is left."""
        for copy_id in list(islice(self._timeouts, count)):
            self._withdraw(copy_id, "ended")
        return bool(self._timeouts)

    def withdraw_all(self) -> None:
        """Withdraw them all, since the owner ends."""
        self.withdraw_some(len(self._timeouts))

    def _withdraw(self, copy_id: int, why: Withdrawal) -> None:
        self._forget(copy_id)
        # A reset ends them without a word.
        with suppress(UnknownCopy):
            self._node.withdraw(copy_id, why)

    def _forget(self, copy_id: int) -> None:
        timeout = self._timeouts.pop(copy_id, None)
        if timeout is None:
            raise UnknownCopy(f"copy {copy_id} is not pending", copy_id=copy_id)
        timeout.cancel()
        if copy_id in self._outliving:
            holding, blocks = self._outliving.pop(copy_id)
            holding.blocks -= blocks
