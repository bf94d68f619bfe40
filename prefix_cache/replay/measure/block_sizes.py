"""What caches of other block sizes would have hit, with the same memory."""

from __future__ import annotations

from collections.abc import Sequence

from prefix_cache.replay.formats import Grain
from prefix_cache.replay.measure.seen import Stretch
from prefix_cache.replay.measure.stack_distance import StackDistances

_LARGEST = 512
_STEPS = 4  # where one hash stands for that many tokens or more already


class BlockSizes:
    """Hits by block size: powers of two from 1 to 512 tokens, as far as the grain allows."""

    def __init__(self, grain: Grain) -> None:
        largest = max(_LARGEST, grain.tokens << (_STEPS - 1))
        sizes = [grain.tokens << step for step in range(largest.bit_length())]
        self._distances = {
            size: StackDistances(grain.words_in(size)) for size in sizes if size <= largest
        }

    def use(
        self, stretches: Sequence[Stretch], prompt_words: int, num_words: int, stamp: int
    ) -> None:
        """Account for a sequence, as ``StackDistances.use`` does."""
        for distances in self._distances.values():
            distances.use(stretches, prompt_words, num_words, stamp)

    def hit_tokens(self, memory: int | None) -> dict[int, int | None]:
        """Return the tokens hit by block size, in caches for ``memory`` tokens; None: any number.

        It is None where the largest request has more blocks than such a cache.
        """
        hits: dict[int, int | None] = {}
        for size, distances in self._distances.items():
            blocks = distances.num_blocks if memory is None else memory // size
            fits = blocks >= distances.largest_request
            hits[size] = size * int(distances.hit_blocks(blocks)) if fits else None
        return hits
