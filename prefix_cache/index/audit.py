"""Checks that pool, tree and live sequences tell one story.  Slow, for tests and for doubts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from prefix_cache.errors import AuditError
from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.host_audit import host_faults
from prefix_cache.index.host_tier import HostTier
from prefix_cache.index.place import Place
from prefix_cache.index.prefix_tree import PrefixTree
from prefix_cache.index.run import Root, Run
from prefix_cache.index.sequence import Sequence
from prefix_cache.index.tokens import TOKEN_BYTES


def audit(
    pool: BlockPool,
    tree: PrefixTree,
    host: HostTier,
    sequences: Iterable[Sequence],
    block_size: int,
) -> None:
    """Raise ``AuditError`` naming the first invariant that does not hold."""
    live = list(sequences)
    runs = [run for root in tree.roots.values() for run in _subtree(root)]
    for identity, root in tree.roots.items():
        _check(root.identity == identity, f"root of {identity} is that of {root.identity}")
        _check(bool(root.children or root.uses), f"root of {identity} outlived its last run")
    for run in runs:
        _check_run(run, tree, Counter(seq.run for seq in live)[run])
    for fault in host_faults(host, runs):
        _check(False, fault)
    _check_eviction_order(tree, [run for run in runs if not isinstance(run, Root)])
    for seq in live:
        _check_sequence(seq, tree, block_size)
    _check_pool(pool, runs, live, host)


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise AuditError(message)


def _subtree(run: Run) -> Iterator[Run]:
    waiting = [run]
    while waiting:
        run = waiting.pop()
        yield run
        waiting += run.all_children()


def _check_run(run: Run, tree: PrefixTree, users: int) -> None:
    name = f"run of blocks {run.blocks.tolist()}"
    children = list(run.all_children())
    for block_hash, bucket in run.children.items():
        for child in bucket:
            _check(child.parent is run, f"{name}: a child names another parent")
            _check(child.first_hash == block_hash, f"{name}: a child is kept under a wrong hash")
    in_use = sum(1 for child in children if child.uses)
    _check(run.users == users, f"{name}: {run.users} users, but {users} live sequences end there")
    _check(run.uses == users + in_use, f"{name}: {run.uses} uses, expected {users + in_use}")
    firsts = {(bytes(c.tokens[: tree.block_bytes]), c.extra.get(0, b"")) for c in children}
    _check(len(firsts) == len(children), f"{name}: two children begin with the same block")
    if isinstance(run, Root):
        return
    count = len(run.blocks)
    _check(count > 0, "a run has no blocks")
    _check(len(run.tokens) == count * tree.block_bytes, f"{name}: {len(run.tokens)} token bytes")
    _check(all(0 <= index < count for index in run.extra), f"{name}: extra keys beyond its end")
    assert run.parent is not None
    hashes = tree.hasher.chain(run.parent.last_hash, bytes(run.tokens), run.extra)
    _check(run.hashes == hashes, f"{name}: hashes are not those of its tokens")
    only = run.only_child()
    alike = only is not None and only.stamp == run.stamp and not run.users
    on_host = run.on_host or (only is not None and only.on_host)
    _check(on_host or not alike, f"{name}: should be merged with its only child")


def _check_eviction_order(tree: PrefixTree, runs: list[Run]) -> None:
    unused = [run for run in runs if not run.uses and not run.on_host]
    on_host = {run for run in runs if run.on_host}
    _check(set(tree.unused) == set(unused), "the eviction order is not the set of unused runs")
    _check(set(tree.hosted) == on_host, "the host's eviction order is not the set of its runs")
    _check(
        tree.evictable == sum(len(run.blocks) for run in unused),
        f"{tree.evictable} evictable is wrong",
    )
    for order, gone in ((tree.hosted, set[Run]()), (tree.unused, on_host)):
        last = 0
        for run in order:
            gone.add(run)
            _check(last <= run.stamp, "an earlier release comes later in the eviction order")
            last = run.stamp
            _check(gone.issuperset(run.all_children()), "a run would be evicted before its child")


def _check_sequence(seq: Sequence, tree: PrefixTree, block_size: int) -> None:
    name = f"sequence {seq.id}"
    path = Place(seq.run, len(seq.run.blocks), seq.depth).blocks()
    _check(len(path) == seq.depth, f"{name}: pinned {len(path)} blocks deep, expected {seq.depth}")
    _check(tree.root_of(seq.run).identity in tree.roots, f"{name}: pinned outside the tree")
    expected = seq.findable_blocks(seq.num_committed_tokens)
    _check(seq.depth == expected, f"{name}: {seq.depth} findable blocks, expected {expected}")
    started = -(-seq.num_tokens // block_size)
    _check(len(seq.table) == started, f"{name}: {len(seq.table)} blocks, expected {started}")
    own = [mine for mine, cached in zip(seq.table, path, strict=False) if mine != cached]
    _check(own == seq.duplicates.tolist(), f"{name}: its duplicates are {own}")
    pending = len(seq.pending) // TOKEN_BYTES
    uncommitted = seq.num_tokens - seq.depth * block_size
    _check(pending == uncommitted, f"{name}: {pending} pending tokens, expected {uncommitted}")
    _check(seq in seq.family, f"{name}: not in its own family")
    for other in seq.family:
        together = seq.depth == other.depth or not (
            set(seq.table[min(seq.depth, other.depth) :])
            & set(other.private_blocks())
            & set(seq.private_blocks()) - set(seq.duplicates) - set(other.duplicates)
        )
        _check(together, f"{name}: a fork that shares uncommitted blocks was left behind")


def _check_pool(pool: BlockPool, runs: list[Run], live: list[Sequence], host: HostTier) -> None:
    free = pool.free_numbers()
    cached = [block for run in runs if not run.on_host for block in run.blocks]
    holders = Counter(block for seq in live for block in seq.private_blocks())
    holders.update(block for copy in host.pending.all() for block in copy.targets)
    every = sorted([*free, *cached, *holders])
    _check(every == list(range(pool.size)), "a block is lost, or in two states at once")
    _check(pool.cached == len(cached), f"{pool.cached} cached blocks, expected {len(cached)}")
    _check(pool.private == len(holders), f"{pool.private} private, expected {len(holders)}")
    for block, count in holders.items():
        _check(
            pool.holders(block) == count,
            f"block {block} has {pool.holders(block)} holders, but {count} hold it",
        )
