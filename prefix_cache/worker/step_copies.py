"""The copies of blocks that one step makes before it computes."""

from __future__ import annotations

import logging
import time

from prefix_cache.client import Acknowledge, AcquiredSequence, Appended
from prefix_cache.errors import CorruptBlock
from prefix_cache.kv.pool import KVPool
from prefix_cache.worker.resume_costs import ResumeCosts
from prefix_cache.worker.running_sequence import RunningSequence

_LOG = logging.getLogger(__name__)

_Pairs = tuple[tuple[int, int], ...]


class StepCopies:
    """Gathers them from the cache's answers and makes them in the one order that is right.

    First blocks go to the host, before anything is written over them; then blocks come from the
    host; then shared blocks are copied for who is about to write.
    """

    def __init__(self) -> None:
        self._offloads: list[tuple[int, int]] = []
        self._loads: list[tuple[RunningSequence, int, _Pairs]] = []
        self._copies: list[tuple[int, int]] = []
        self._copy_ids: list[int] = []

    def add_acquired(self, sequence: RunningSequence, result: AcquiredSequence) -> None:
        """Add what opening a sequence asks for."""
        asked = result.copies
        self._offloads += asked.offloads
        self._copy_ids.append(asked.copy_id)
        if asked.loads:
            self._loads.append((sequence, asked.copy_id, asked.loads))

    def add_appended(self, result: Appended) -> None:
        """Add what appending asks for."""
        self._offloads += result.offloads
        self._copies += result.copies
        self._copy_ids.append(result.copy_id)

    def make(self, pool: KVPool, costs: ResumeCosts) -> list[Acknowledge]:
        """Make them, and measure the loads; return what to tell the cache of it.

        What the host has lost is computed: the cache is told so, and has it again from us.
        """
        if self._offloads:
            pool.offload(self._offloads)
        lost: set[int] = set()
        for sequence, copy_id, loads in self._loads:
            began = time.monotonic()
            try:
                pool.load(loads)
            except CorruptBlock as error:
                _LOG.warning("%d blocks are computed again: %s", len(loads), error)
                sequence.not_loaded()
                lost.add(copy_id)
            else:
                costs.loaded(len(loads), time.monotonic() - began)
        if self._copies:
            pool.copy_blocks(self._copies)
        return [Acknowledge(copy_id, copy_id in lost) for copy_id in self._copy_ids if copy_id]
