"""Hit rate against cache size from a sample of the blocks, in a fraction of the memory.

A block is in the sample by its hash, so that every use of it is, and a place in the order of the
sampled blocks stands for one in the order of all (SHARDS, Waldspurger et al., FAST '15).  What is
scaled up are misses: a block that is used again and again hardly ever misses, and whether it
happens to be in the sample does not matter then.  How far groups of sampled blocks are apart tells
the error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import xxhash

from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats import Request
from prefix_cache.replay.measure.curve import Point
from prefix_cache.replay.measure.fenwick import Fenwick
from prefix_cache.replay.measure.stack_distance import findable_blocks

Floats = npt.NDArray[np.float64]

_GROUPS = 32
_HASH_BITS = 64


class SampledDistances:
    """Hit rates of caches of every size, from a share ``rate`` (0 to 1) of all blocks.

    A block has ``block_words`` words and ``block_size`` tokens.  Memory grows with the sampled
    blocks, by about 200 bytes each.
    """

    def __init__(self, block_words: int, block_size: int, rate: float) -> None:
        self.requests = 0
        self.prompt_tokens = 0
        self.largest_request = 0
        self._block_bytes = block_words * TOKEN_BYTES
        self._block_size = block_size
        self._rate = rate
        self._limit = int(rate * 2**_HASH_BITS)
        self._findable = 0
        self._last_use: dict[int, int] = {}
        self._blocks = Fenwick()
        self._lookups = [0] * _GROUPS
        # By group: how many sampled blocks had been used since, and how often that was so.
        self._hits: list[Counter[int]] = [Counter() for _ in range(_GROUPS)]

    def use(self, request: Request) -> None:
        """Account for a request."""
        words = request.prompt + request.answer
        size = self._block_bytes
        self.requests += 1
        self.prompt_tokens += request.prompt_tokens
        self.largest_request = max(self.largest_request, -(-len(words) // size))
        prompt_words, block_words = len(request.prompt) // TOKEN_BYTES, size // TOKEN_BYTES
        findable = findable_blocks(prompt_words, prompt_words, block_words)
        self._findable += findable
        sampled, moved = [], 0
        block_hash = b""
        for index in range(len(words) // size):
            block = words[index * size : (index + 1) * size]
            block_hash = xxhash.xxh3_64_digest(block_hash + block)
            number = int.from_bytes(block_hash, "big")
            if number >= self._limit:
                continue
            sampled.append(number)
            group = number % _GROUPS
            self._lookups[group] += index < findable
            if (last := self._last_use.get(number)) is not None:
                if index < findable:
                    self._hits[group][moved + self._blocks.after(last)] += 1
                self._blocks.add(last, -1)
                moved += 1
        self._last_use.update(dict.fromkeys(sampled, self.requests))
        self._blocks.add(self.requests, len(sampled))

    @property
    def sampled_blocks(self) -> int:
        """Blocks in the sample."""
        return len(self._last_use)

    @property
    def num_blocks(self) -> int:
        """Blocks of a cache that loses nothing, about."""
        return int(self.sampled_blocks / self._rate) + 1

    def points(self, sizes: Sequence[int]) -> list[Point]:
        """Return the hit rate of caches of these numbers of blocks, with its error."""
        if not self._findable:
            return []
        blocks = np.array(sizes, dtype=np.float64)
        rates, spread = self._rates(blocks)
        # The sample holds not quite its share of the blocks that were used since another.
        off = 2 / np.sqrt(np.maximum(blocks * self._rate, 4))
        slope = (self._rates(blocks * (1 + off))[0] - self._rates(blocks * (1 - off))[0]) / 2
        errors = np.hypot(spread, slope)
        shares = np.clip(rates, 0, 1).tolist()
        found = zip(sizes, shares, errors.tolist(), strict=True)
        return [Point(size, rate, error) for size, rate, error in found]

    def _rates(self, blocks: Floats) -> tuple[Floats, Floats]:
        """Hit rates, and twice the standard error of what is scaled up."""
        hits = np.array([self._group_hits(counts, blocks) for counts in self._hits])
        misses = np.array(self._lookups)[:, None] - hits
        expected = self._rate * self._findable
        scale = self._block_size * self._findable / self.prompt_tokens
        rates = scale * (1 - misses.sum(axis=0) / expected)
        return rates, 2 * scale * np.sqrt(_GROUPS * misses.var(axis=0, ddof=1)) / expected

    def _group_hits(self, counts: Counter[int], blocks: Floats) -> npt.NDArray[np.int64]:
        """How many sampled blocks of a group hit in caches of these sizes."""
        places = np.array(sorted(counts), dtype=np.int64)
        totals = np.cumsum([0, *(counts[place] for place in places.tolist())])
        hits: npt.NDArray[np.int64] = totals[np.searchsorted(places / self._rate, blocks)]
        return hits
