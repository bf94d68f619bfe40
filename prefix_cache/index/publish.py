"""Committed blocks become findable: where they go in the tree, and which forks go along."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.events import BlocksStored
from prefix_cache.index.outbox import Outbox
from prefix_cache.index.prefix_tree import Place, PrefixTree
from prefix_cache.index.run import Run
from prefix_cache.index.sequence import Sequence


@dataclass(frozen=True, slots=True)
class _Findings:
    """What the tree has of the blocks to publish, and what it has not.

    Up to block ``first``, in ``run``, equal blocks are cached already.  From there on all are
    new, with these tokens, hashes and extra keys.
    """

    run: Run
    first: int
    tokens: bytes
    hashes: bytearray
    extra: dict[int, bytes]


def publish(seq: Sequence, target: int, tree: PrefixTree, pool: BlockPool, outbox: Outbox) -> None:
    """Make the blocks of ``seq`` up to ``target`` findable, for all forks that share them.

    Blocks that are cached already stay as they are, and the sequence keeps its copies to itself.
    The others, which come after them, go into ``outbox`` as one event.
    """
    end = Place(seq.run, len(seq.run.blocks), seq.depth)
    cached = tree.find(end, seq.pending, seq.extra_keys, target)
    size = tree.block_bytes
    tokens = bytes(seq.pending[(cached.depth - end.depth) * size : (target - end.depth) * size])
    extra = seq.extra_keys.for_blocks(cached.depth, target)
    parent = cached.block_hash
    # The hash function is the caller's and may fail: all of it comes before the first change.
    hashes = tree.hasher.chain(parent, tokens, extra)
    found = _Findings(cached.run, cached.depth, tokens, hashes, extra)
    while seq.depth < target:
        _step(seq, target, found, tree, pool)
    if tokens and outbox.wanted:
        outbox.put(
            BlocksStored(
                block_hashes=tree.hasher.split(hashes),
                parent_block_hash=parent if cached.depth else None,
                token_ids=tokens,
                block_size=tree.block_size,
                extra_keys=tuple(extra.get(index, b"") for index in range(target - cached.depth)),
                identity=tree.root_of(seq.run).identity,
            )
        )


def _step(seq: Sequence, target: int, found: _Findings, tree: PrefixTree, pool: BlockPool) -> None:
    """Go as far as the same forks share the blocks, and as these are all cached or all new."""
    old, start = seq.run, seq.depth
    is_new = start >= found.first
    extents = {
        other: other.shared_until(seq, target if is_new else found.first)
        for other in seq.family
        if other.depth == start
    }
    sharers = [other for other, until in extents.items() if until > start]
    stop = min(extents[other] for other in sharers)
    if is_new:
        run = _store(seq, stop, found, len(sharers), tree)
        pool.hand_over(seq.table[start:stop])
    else:
        place = tree.on_path(found.run, stop)
        assert place is not None, "what is cached stays while the sequence is pinned"
        run = tree.boundary(place)
    for sharer in sharers:
        sharer.advance(run, stop, keeps_copies=not is_new)
        if run is not old:
            tree.move_pin(old, run)


def _store(seq: Sequence, stop: int, found: _Findings, sharers: int, tree: PrefixTree) -> Run:
    """Add the blocks of ``seq`` up to ``stop`` to the tree; the run that ends with them."""
    begin, end = seq.depth - found.first, stop - found.first
    size = tree.hasher.size
    return tree.grow(
        seq.run,
        sharers,
        found.tokens[begin * tree.block_bytes : end * tree.block_bytes],
        found.hashes[begin * size : end * size],
        seq.table[seq.depth : stop],
        {index - begin: key for index, key in found.extra.items() if begin <= index < end},
    )
