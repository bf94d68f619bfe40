"""A simulated inference worker: memory for KV blocks and host slots, written as it is told.

What stands in a slot is a number for all that this position's KV depends on: the identity, every
token up to it and every extra key over them.  So a slot that holds the right number holds the
right KV, and a block that was shared, reused or copied wrongly shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from prefix_cache import Identity

from .records import ExtraKey

BlockTable = Sequence[int] | np.ndarray


class _Work(NamedTuple):
    copies: Any  # as the cache told them
    contents: list[np.ndarray]  # of the offloaded blocks


class Worker:
    """KV memory in blocks and in slots on the host; -1 where nothing was written yet."""

    def __init__(self, num_blocks: int, block_size: int, num_slots: int = 0) -> None:
        self.memory = np.full((num_blocks, block_size), -1)
        self.host = np.full((num_slots, block_size), -1)
        self.pending: dict[int, _Work] = {}  # copies told and not acknowledged, by number
        self._numbers: dict[object, int] = {}

    def kv(
        self,
        who: Identity,
        tokens: Sequence[int],
        extra_keys: Iterable[ExtraKey] = (),
        unknown: object = None,
    ) -> list[int]:
        """KV of every token; ``unknown`` stands for content whose extra key is None."""
        before, numbers = self._number(who), []
        for position, token in enumerate(tokens):
            content = frozenset(
                unknown if key is None else key
                for start, end, key in extra_keys
                if start <= position and (end is None or position < end)
            )
            before = self._number((before, token, content))
            numbers.append(before)
        return numbers

    def write(self, block_table: BlockTable, kv: Sequence[int], start: int) -> None:
        """Compute the KV of the positions from ``start`` to the end of ``kv``."""
        size = self.memory.shape[1]
        for position in range(start, len(kv)):
            self.memory[block_table[position // size], position % size] = kv[position]

    def copy(self, copies: Iterable[tuple[int, int]]) -> None:
        for src, dst in copies:
            self.memory[dst] = self.memory[src]

    def begin(self, copies: Any) -> None:
        """Read the blocks that go to the host; all else may come any time later, or never."""
        contents = [self.memory[block].copy() for block, _ in copies.offloads]
        self.pending[copies.copy_id] = _Work(copies, contents)

    def make(self, copy_id: int) -> None:
        """Write to the host, then load from it."""
        copies, contents = self.pending[copy_id]
        for (_, slot), content in zip(copies.offloads, contents, strict=True):
            self.host[slot] = content
        for slot, block in copies.loads:
            self.memory[block] = self.host[slot]

    def forget(self, copy_id: int) -> None:
        """The copies will not be made from now on."""
        del self.pending[copy_id]

    def read(self, block_table: BlockTable, num_tokens: int) -> list[int]:
        """What attention would read for the first ``num_tokens`` positions."""
        return list(self.memory[np.asarray(block_table)].ravel()[:num_tokens].tolist())

    def _number(self, content: object) -> int:
        return self._numbers.setdefault(content, len(self._numbers))
