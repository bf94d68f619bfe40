"""A simulated inference worker: memory for KV blocks, written as the protocol tells.

What stands in a slot is a number for all that this position's KV depends on: the identity, every
token up to it and every extra key over them.  So a slot that holds the right number holds the
right KV, and a block that was shared, reused or copied wrongly shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from prefix_cache import Identity

from .records import ExtraKey

BlockTable = Sequence[int] | np.ndarray


class Worker:
    """KV memory of ``num_blocks`` blocks; -1 where nothing was written yet."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.memory = np.full((num_blocks, block_size), -1)
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

    def read(self, block_table: BlockTable, num_tokens: int) -> list[int]:
        """What attention would read for the first ``num_tokens`` positions."""
        return list(self.memory[np.asarray(block_table)].ravel()[:num_tokens].tolist())

    def _number(self, content: object) -> int:
        return self._numbers.setdefault(content, len(self._numbers))
