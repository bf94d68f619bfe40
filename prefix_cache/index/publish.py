"""Committed blocks become findable: where they go in the tree, and which forks go along."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.events import BlocksStored
from prefix_cache.index.host_tier import HostTier
from prefix_cache.index.outbox import Outbox
from prefix_cache.index.place import Place
from prefix_cache.index.prefix_tree import PrefixTree
from prefix_cache.index.run import Run
from prefix_cache.index.sequence import Sequence


@dataclass(slots=True)
class _Findings:
    """What the tree has of the blocks to publish, and what it has not.

    Up to block ``first``, in ``run``, equal blocks are cached already; those from block
    ``on_host`` on lie on the host.  From ``first`` on all are new, with these tokens, hashes and
    extra keys.
    """

    run: Run
    on_host: int
    first: int
    tokens: bytes
    hashes: bytearray
    extra: dict[int, bytes]


def publish(
    seq: Sequence,
    target: int,
    tree: PrefixTree,
    pool: BlockPool,
    host: HostTier,
    outbox: Outbox,
) -> None:
    """Make the blocks of ``seq`` up to ``target`` findable, for all forks that share them.

    Blocks that are cached already stay as they are, and the sequence keeps its copies to itself;
    but those on the host give way to the sequence's.  The others, which come after them, go into
    ``outbox`` as one event.
    """
    end = Place(seq.run, len(seq.run.blocks), seq.depth)
    cached = tree.find(end, seq.pending, seq.extra_keys, target)
    size = tree.block_bytes
    tokens = bytes(seq.pending[(cached.depth - end.depth) * size : (target - end.depth) * size])
    extra = seq.extra_keys.for_blocks(cached.depth, target)
    parent = cached.block_hash
    # The hash function is the caller's and may fail: all of it comes before the first change.
    hashes = tree.hasher.chain(parent, tokens, extra)
    found = _Findings(cached.run, cached.gpu_end().depth, cached.depth, tokens, hashes, extra)
    while seq.depth < target:
        _step(seq, target, found, tree, pool, host)
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


def _step(
    seq: Sequence,
    target: int,
    found: _Findings,
    tree: PrefixTree,
    pool: BlockPool,
    host: HostTier,
) -> None:
    """Go as far as the same forks share the blocks, and as these are all found alike."""
    old, start = seq.run, seq.depth
    keeps_copies = start < found.on_host
    limit = found.on_host if keeps_copies else _end_of_run(found, start, target, tree)
    extents = {
        other: other.shared_until(seq, limit) for other in seq.family if other.depth == start
    }
    sharers = [other for other, until in extents.items() if until > start]
    stop = min(extents[other] for other in sharers)
    blocks = seq.table[start:stop]
    if start >= found.first:
        run = _store(seq, stop, found, len(sharers), tree)
    elif keeps_copies:
        run = tree.boundary(_place(found, stop, tree))
    else:
        run = host.adopt(_place(found, stop, tree), blocks)
    if not keeps_copies:
        pool.hand_over(blocks)
    for sharer in sharers:
        sharer.advance(run, stop, keeps_copies=keeps_copies)
        if run is not old:
            tree.move_pin(old, run)


def _end_of_run(found: _Findings, start: int, target: int, tree: PrefixTree) -> int:
    """How far blocks that are not on the GPU go into the tree at once, from ``start`` on."""
    if start >= found.first:
        return target
    run, into, _ = _place(found, start + 1, tree)
    return min(found.first, start + len(run.blocks) - into + 1)


def _place(found: _Findings, depth: int, tree: PrefixTree) -> Place:
    place = tree.on_path(found.run, depth)
    assert place is not None, "what is cached stays while the sequence is pinned"
    return place


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
