"""Committed blocks become findable: where they go in the tree, and which forks go along."""

from __future__ import annotations

from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.events import BlocksStored
from prefix_cache.index.outbox import Outbox
from prefix_cache.index.prefix_tree import Place, PrefixTree
from prefix_cache.index.run import Root, Run
from prefix_cache.index.sequence import Sequence


def publish(
    seq: Sequence,
    target: int,
    tree: PrefixTree,
    pool: BlockPool,
    outbox: Outbox,
) -> None:
    """Make the blocks of ``seq`` up to ``target`` findable, for all forks that share them.

    Blocks that are cached already stay as they are, and the sequence keeps its copies to itself.
    What became findable goes into ``outbox``, in the order of the chain.
    """
    while seq.depth < target:
        _step(seq, target, tree, pool, outbox)


def _step(
    seq: Sequence,
    target: int,
    tree: PrefixTree,
    pool: BlockPool,
    outbox: Outbox,
) -> None:
    """Go as far as the same forks share the blocks, and as these are all cached or all new."""
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
        new = _store(seq, stop, len(sharers), tree, outbox)
        pool.hand_over(seq.table[start:stop])
    else:
        new, stop = tree.boundary(cached), cached.depth
    for sharer in sharers:
        sharer.advance(new, stop, tree.block_size, keeps_copies=not is_new)
        if new is not old:
            tree.move_pin(old, new)


def _store(
    seq: Sequence,
    stop: int,
    sharers: int,
    tree: PrefixTree,
    outbox: Outbox,
) -> Run:
    """Add the blocks of ``seq`` up to ``stop`` to the tree; the run that ends with them."""
    blocks = seq.table[seq.depth : stop]
    tokens = bytes(seq.pending[: len(blocks) * tree.block_bytes])
    extra = seq.extra_keys.for_blocks(seq.depth, stop)
    parent = seq.run.last_hash
    hashes = tree.hasher.chain(parent, tokens, extra)
    if outbox.wanted:
        outbox.put(
            BlocksStored(
                block_hashes=tree.hasher.split(hashes),
                parent_block_hash=None if isinstance(seq.run, Root) else parent,
                token_ids=tokens,
                block_size=tree.block_size,
                extra_keys=tuple(extra.get(index, b"") for index in range(len(blocks))),
                identity=tree.identity_of(seq.run),
            )
        )
    return tree.grow(seq.run, sharers, tokens, hashes, blocks, extra)
