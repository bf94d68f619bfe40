"""Hits for all cache sizes in one pass (Mattson's stack distances), exact for ``BlockCache``.

Blocks of a cache stand in an order: the one used last first, of one sequence its head first.  A
cache evicts from the end of it, so that a cache of N blocks holds about the first N, and a block
that is used again hits in all caches larger than its place, its distance.  What was used as one
stretch still stands together, so that a request costs a few steps for each stretch, not for each
block.

"About": a sequence may hold one block more than it leaves behind.  Either its last one, which is
partial and cannot be found later, or, where all of it was cached and it ends with a full block,
a second copy of that block, because one token is always computed.  While it lives, caches hold
one block less of the others.  A block behind which nothing moved since then needs a cache larger
by this one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prefix_cache.replay.measure.fenwick import Fenwick
from prefix_cache.replay.measure.seen import Stretch

_NEVER = 0  # stamps begin at 1


class StackDistances:
    """Hits of caches of every size from ``largest_request`` blocks on, in blocks.

    A block has ``block_words`` words.  Smaller caches could not serve every request.
    """

    def __init__(self, block_words: int) -> None:
        self.largest_request = 0
        self._block_words = block_words
        self._blocks = Fenwick()  # by stamp: how many blocks were used last then
        # Of stamps up to this one, blocks need a cache that is larger by one.
        self._crowded_until = _NEVER
        # How many blocks more hit in caches of N blocks than in those of N - 1: its changes.
        self._changes: defaultdict[int, int] = defaultdict(int)

    def use(
        self, stretches: Sequence[Stretch], prompt_words: int, num_words: int, stamp: int
    ) -> None:
        """Account for a sequence whose beginning was used before as ``stretches`` say.

        It is looked up as its first ``prompt_words`` words, and leaves ``num_words``.  ``stamp``
        is greater than all before it.
        """
        size = self._block_words
        findable = findable_blocks(prompt_words, prompt_words, size)
        full, partial = divmod(num_words, size)
        first = 0
        oldest = _NEVER
        for stretch in stretches:
            end = min(stretch.end // size, full)
            if end <= first:
                continue
            newer = first + self._blocks.after(stretch.stamp)
            self._hit(newer + self._crowded(stretch.stamp), min(end, findable) - first)
            self._blocks.add(stretch.stamp, first - end)
            first, oldest = end, stretch.stamp
        self._blocks.add(stamp, full)
        if partial:
            self._crowded_until = stamp
        else:
            self._crowded_until = oldest if first == full else _NEVER
        self.largest_request = max(self.largest_request, full + bool(partial))

    @property
    def num_blocks(self) -> int:
        """Blocks of a cache that loses nothing."""
        return self._blocks.after(_NEVER) + 1

    def hit_blocks(self, sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return how many blocks hit in caches of these numbers of blocks."""
        capacities = np.asarray(sizes, dtype=np.int64)
        changes = sorted(self._changes.items())
        starts = np.array([start for start, _ in changes], dtype=np.int64)
        slopes = np.cumsum([0, *(change for _, change in changes)], dtype=np.int64)
        weights = np.cumsum([0, *(start * change for start, change in changes)], dtype=np.int64)
        known = np.searchsorted(starts, capacities, side="right")
        # Each change counts once for every size from its start on.
        hits: npt.NDArray[np.int64] = slopes[known] * (capacities + 1) - weights[known]
        return hits

    def _crowded(self, stamp: int) -> int:
        return int(stamp <= self._crowded_until)

    def _hit(self, before: int, count: int) -> None:
        """The next ``count`` blocks hit in caches that hold more than ``before`` blocks."""
        if count > 0:
            self._changes[before + 1] += 1
            self._changes[before + count + 1] -= 1


def findable_blocks(seen_words: int, prompt_words: int, block_words: int) -> int:
    """Full blocks that hit where the first words were seen; one token at least is computed."""
    return min(seen_words, prompt_words - 1) // block_words
