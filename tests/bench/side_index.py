"""Our side of the comparison with peers."""

from __future__ import annotations

import itertools
from collections import deque

import numpy as np

from prefix_cache import BlockCache
from prefix_cache.index import Event
from prefix_cache.index.tokens import Tokens
from tests.bench.prompts import BLOCK_SIZE, WHO, new_prompts, random_tokens, unlike_from
from tests.bench.side import Clock, serve_rounds
from tests.bench.workload import NUM_BLOCKS, NUM_TOKENS, REPEATS


class IndexSide:
    """A pool with free blocks, a full one, and a full one that announces what it does."""

    def __init__(self) -> None:
        self._base = random_tokens(NUM_TOKENS)
        self._new = new_prompts(NUM_TOKENS)
        self._roomy = BlockCache(NUM_BLOCKS, BLOCK_SIZE)
        self._full = BlockCache(NUM_BLOCKS, BLOCK_SIZE)
        last: deque[Event] = deque(maxlen=1)
        self._announcing = BlockCache(NUM_BLOCKS, BLOCK_SIZE, on_event=last.append)
        for cache in (self._full, self._announcing):
            while cache.stats().free:
                _turn(cache, next(self._new))

    def play(self, clock: Clock) -> None:
        """One round."""
        for cache in (self._roomy, self._full):
            _turn(cache, self._base)
        known = [unlike_from(self._base, NUM_TOKENS) for _ in range(REPEATS)]
        arrays = [np.frombuffer(prompt, "<u4") for prompt in known]
        for prompt in known:
            clock.time("full hit, bytes", _turn, self._roomy, prompt)
        for array in arrays:
            clock.time("full hit, uint32", _turn, self._roomy, array)
        for prompt in known:
            clock.time("full hit, full pool", _turn, self._full, prompt)
        for prompt in known:
            clock.time("find, bytes", self._roomy.match, WHO, prompt)
        for array in arrays:
            clock.time("find, uint32", self._roomy.match, WHO, array)
        for prompt in itertools.islice(self._new, REPEATS):
            clock.time("evict", _turn, self._full, prompt)
        for prompt in itertools.islice(self._new, REPEATS):
            clock.time("evict, events", _turn, self._announcing, prompt)


def _turn(cache: BlockCache, prompt: Tokens) -> None:
    sequence = cache.acquire(WHO, prompt)
    cache.commit(sequence, sequence.num_tokens)
    cache.release(sequence)


if __name__ == "__main__":
    serve_rounds(IndexSide().play)
