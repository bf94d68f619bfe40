"""Committed blocks become findable: where they go in the tree, and which forks go along."""

from __future__ import annotations

from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.events import BlocksStored
from prefix_cache.index.outbox import Outbox
from prefix_cache.index.prefix_tree import Place, PrefixTree
from prefix_cache.index.run import Run
from prefix_cache.index.sequence import Sequence


def publish(seq: Sequence, target: int, tree: PrefixTree, pool: BlockPool, outbox: Outbox) -> None:
    """Make the blocks of ``seq`` up to ``target`` findable, for all forks that share them.

    Blocks that are cached already stay as they are, and the sequence keeps its copies to itself.
    The others go into ``outbox`` as one event.
    """
    tokens = seq.pending[: (target - seq.depth) * tree.block_bytes] if outbox.wanted else b""
    stored = 0
    while seq.depth < target:
        stored += _step(seq, target, tree, pool)
    if stored and outbox.wanted:
        # New blocks come last: nothing in the tree follows a new block.
        outbox.put(_event(seq, stored, bytes(tokens[-stored * tree.block_bytes :]), tree))


def _step(seq: Sequence, target: int, tree: PrefixTree, pool: BlockPool) -> int:
    """Go as far as the same forks share the blocks, and as these are all cached or all new.

    Returns how many became findable.
    """
    old, start = seq.run, seq.depth
    sharers = [
        other for other in seq.family if other.depth == start and other.shares(seq, start + 1)
    ]
    stop = target
    while not all(other.shares(seq, stop) for other in sharers):
        stop -= 1
    cached = tree.find(Place(old, len(old), start), seq.pending, seq.extra_keys, stop)
    is_new = cached.depth == start
    if is_new:
        new = _store(seq, stop, len(sharers), tree)
        pool.hand_over(seq.table[start:stop])
    else:
        new, stop = tree.boundary(cached), cached.depth
    for sharer in sharers:
        sharer.advance(new, stop, keeps_copies=not is_new)
        if new is not old:
            tree.move_pin(old, new)
    return stop - start if is_new else 0


def _store(seq: Sequence, stop: int, sharers: int, tree: PrefixTree) -> Run:
    """Add the blocks of ``seq`` up to ``stop`` to the tree; the run that ends with them."""
    blocks = seq.table[seq.depth : stop]
    tokens = bytes(seq.pending[: len(blocks) * tree.block_bytes])
    extra = seq.extra_keys.for_blocks(seq.depth, stop)
    hashes = tree.hasher.chain(seq.run.last_hash, tokens, extra)
    return tree.grow(seq.run, sharers, tokens, hashes, blocks, extra)


def _event(seq: Sequence, stored: int, tokens: bytes, tree: PrefixTree) -> BlocksStored:
    """The event of the last ``stored`` findable blocks of ``seq``, which have these tokens."""
    first = seq.depth - stored
    extra = seq.extra_keys.for_blocks(first, seq.depth)
    hashes = tree.last_hashes(seq.run, stored + 1)
    return BlocksStored(
        block_hashes=hashes[1:],
        parent_block_hash=hashes[0] if first else None,
        token_ids=tokens,
        block_size=tree.block_size,
        extra_keys=tuple(extra.get(index, b"") for index in range(stored)),
        identity=tree.root_of(seq.run).identity,
    )
