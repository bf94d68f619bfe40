"""The blocks that one cache holds, least recently used first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from prefix_cache.replay.policies.trace import TraceRequest


class BlockLru:
    """At most ``num_blocks`` blocks by hash.  Of a prompt, the last block is evicted first."""

    def __init__(self, num_blocks: int) -> None:
        self._num_blocks = num_blocks
        self._blocks: OrderedDict[bytes, None] = OrderedDict()

    def held_blocks(self, block_hashes: Sequence[bytes]) -> int:
        """How many of the first blocks of a prompt are held; changes nothing."""
        for held, block_hash in enumerate(block_hashes):
            if block_hash not in self._blocks:
                return held
        return len(block_hashes)

    def use(self, block_hashes: Sequence[bytes]) -> None:
        """Hold all blocks of a prompt, and evict what there is no room for."""
        blocks = self._blocks
        for block_hash in reversed(block_hashes):
            blocks[block_hash] = None
            blocks.move_to_end(block_hash)
        for _ in range(len(blocks) - self._num_blocks):
            blocks.popitem(last=False)


def pooled_hit_rate(trace: Iterable[TraceRequest], num_blocks: int) -> float:
    """Share of all blocks that one cache in place of all nodes would have held."""
    cache = BlockLru(num_blocks)
    held = blocks = 0
    for request in trace:
        held += cache.held_blocks(request.block_hashes)
        blocks += len(request.block_hashes)
        cache.use(request.block_hashes)
    return held / blocks if blocks else 0.0
