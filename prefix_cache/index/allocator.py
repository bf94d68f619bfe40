"""Blocks for sequences: free ones first, then evicted ones, all or none."""

from __future__ import annotations

from array import array

from prefix_cache.errors import PoolExhausted, PromptTooLarge
from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.counts import Counts
from prefix_cache.index.events import BlocksRemoved
from prefix_cache.index.host_tier import HostTier
from prefix_cache.index.outbox import Outbox
from prefix_cache.index.prefix_tree import PrefixTree


class Allocator:
    """Asked first whether there is room, it takes blocks from pool and tree."""

    def __init__(
        self, pool: BlockPool, tree: PrefixTree, host: HostTier, counts: Counts, outbox: Outbox
    ) -> None:
        self._pool = pool
        self._tree = tree
        self._host = host
        self._counts = counts
        self._outbox = outbox

    def check_room(self, total: int, needed: int, pinned: int) -> None:
        """Raise where ``needed`` blocks cannot be had, of ``total`` that the sequence will have.

        ``pinned`` of the evictable blocks are about to be pinned and do not count.  Raises
        ``PromptTooLarge`` or ``PoolExhausted``.
        """
        if total > self._pool.size:
            raise PromptTooLarge(
                f"the sequence needs {total} blocks, the pool has {self._pool.size}",
                needed=total,
                num_blocks=self._pool.size,
            )
        available = self._pool.free + self._tree.evictable - pinned
        if needed > available:
            raise PoolExhausted(
                f"{needed} blocks are needed, {available} are free or evictable",
                needed=needed,
                available=available,
            )

    def take(self, count: int) -> array[int]:
        """``count`` blocks, which must be there."""
        short = count - self._pool.free
        if short <= 0:
            return self._pool.take(count)
        blocks = self._pool.take(count - short)
        removed: list[bytes] | None = [] if self._outbox.wanted else None
        evict = self._host.evict if self._host.slots.size else self._tree.evict
        evicted = evict(short, removed)
        self._pool.take_over(evicted)
        self._counts.evicted_blocks += short
        blocks += evicted
        if removed:
            self._outbox.put(BlocksRemoved(tuple(removed)))
        return blocks
