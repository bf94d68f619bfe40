"""``audit`` notices every way in which the index could contradict itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from prefix_cache import BlockCache, Identity, Sequence
from prefix_cache.errors import AuditError

WHO = Identity(model="m")
SHARED = list(range(8))


def busy_cache() -> tuple[BlockCache, Sequence]:
    """A cache with a live sequence that has a fork and a copy of its own, and two old ones."""
    cache = BlockCache(num_blocks=32, block_size=4)
    for last in (100, 200):
        done = cache.acquire(WHO, [*SHARED, last, last, last, last])
        cache.commit(done, 12)
        cache.release(done)
    live = cache.acquire(WHO, [*SHARED, 1, 2, 3, 4, 5])
    twin = cache.acquire(WHO, [*SHARED, 1, 2, 3, 4, 5])
    cache.commit(live, 13)
    cache.commit(twin, 13)
    cache.fork(twin)
    cache.audit()
    return cache, twin


def lose_a_free_block(cache: BlockCache, twin: Sequence) -> None:
    cache._pool._used += 1


def free_a_cached_block(cache: BlockCache, twin: Sequence) -> None:
    cache._pool._given_back.append(twin.run.blocks[0])


def forget_a_holder(cache: BlockCache, twin: Sequence) -> None:
    cache._pool._more_holders.clear()


def count_too_few_private(cache: BlockCache, twin: Sequence) -> None:
    cache._pool.private -= 1


def count_too_many_evictable(cache: BlockCache, twin: Sequence) -> None:
    cache._tree.evictable += 1


def evict_in_another_order(cache: BlockCache, twin: Sequence) -> None:
    cache._tree.unused.move_to_end(next(iter(cache._tree.unused)))


def evict_what_is_in_use(cache: BlockCache, twin: Sequence) -> None:
    cache._tree.unused[twin.run] = None


def drop_a_user(cache: BlockCache, twin: Sequence) -> None:
    twin.run.users -= 1


def drop_a_use(cache: BlockCache, twin: Sequence) -> None:
    twin.run.uses += 1


def change_a_cached_token(cache: BlockCache, twin: Sequence) -> None:
    twin.run.tokens[0] ^= 1


def lose_token_bytes(cache: BlockCache, twin: Sequence) -> None:
    del twin.run.tokens[-1]


def move_a_child(cache: BlockCache, twin: Sequence) -> None:
    assert twin.run.parent is not None
    bucket = twin.run.parent.children.pop(twin.run.first_hash)
    twin.run.parent.children[b"elsewhere"] = bucket


def name_another_parent(cache: BlockCache, twin: Sequence) -> None:
    twin.run.parent = cache._tree.roots[WHO]


def keep_an_empty_root(cache: BlockCache, twin: Sequence) -> None:
    other = Identity(model="other")
    cache._tree.roots[other] = cache._tree.root(other)


def confuse_two_identities(cache: BlockCache, twin: Sequence) -> None:
    cache._tree.roots[Identity(model="other")] = cache._tree.roots.pop(WHO)


def forget_a_copy(cache: BlockCache, twin: Sequence) -> None:
    twin.duplicates.pop()


def claim_less_depth(cache: BlockCache, twin: Sequence) -> None:
    twin.depth -= 1


def commit_without_publishing(cache: BlockCache, twin: Sequence) -> None:
    twin.num_committed_tokens = 16


def lose_a_pending_token(cache: BlockCache, twin: Sequence) -> None:
    del twin.pending[-4:]


def lose_a_table_entry(cache: BlockCache, twin: Sequence) -> None:
    twin.table.pop()


def leave_the_family(cache: BlockCache, twin: Sequence) -> None:
    twin.family.discard(twin)


@pytest.mark.parametrize(
    "corrupt",
    [
        lose_a_free_block,
        free_a_cached_block,
        forget_a_holder,
        count_too_few_private,
        count_too_many_evictable,
        evict_in_another_order,
        evict_what_is_in_use,
        drop_a_user,
        drop_a_use,
        change_a_cached_token,
        lose_token_bytes,
        move_a_child,
        name_another_parent,
        keep_an_empty_root,
        confuse_two_identities,
        forget_a_copy,
        claim_less_depth,
        commit_without_publishing,
        lose_a_pending_token,
        lose_a_table_entry,
        leave_the_family,
    ],
)
def test_a_contradiction_is_noticed(corrupt: Callable[[BlockCache, Sequence], None]) -> None:
    cache, twin = busy_cache()
    corrupt(cache, twin)
    with pytest.raises(AuditError):
        cache.audit()


def test_forks_left_behind_are_noticed() -> None:
    """Two sequences share a full block; the tree has it, and one of them does not know."""
    cache = BlockCache(num_blocks=8, block_size=4)
    seq = cache.acquire(WHO, list(range(9)))
    child = cache.fork(seq)
    seq.family = {seq}
    child.family = {child}
    cache.commit(seq, 9)
    with pytest.raises(AuditError):
        cache.audit()


def test_runs_that_should_be_one_are_noticed() -> None:
    cache = BlockCache(num_blocks=8, block_size=4)
    seq = cache.acquire(WHO, list(range(9)))
    cache.commit(seq, 9)
    cache.release(seq)
    run = next(iter(cache._tree.unused))
    head = run.cut_front(1)
    root = cache._tree.roots[WHO]
    root.children.clear()
    root.put_child(head)
    head.put_child(run)
    head.stamp = run.stamp
    cache._tree.unused[head] = None
    with pytest.raises(AuditError, match="merged"):
        cache.audit()


def tiered_cache() -> BlockCache:
    """A cache with blocks on the GPU, on the host and on the way in both directions."""
    cache = BlockCache(num_blocks=8, block_size=4, host_blocks=8)
    for token in (100, 200):
        done = cache.acquire(WHO, [*SHARED, token, token, token, token, 1])
        cache.commit(done, 12)
        cache.release(done)
    other = cache.acquire(WHO, [7] * 24)
    cache.acknowledge(other.copies.copy_id)
    cache.commit(other, 24)
    cache.release(other)
    cancelled = cache.acquire(WHO, [*SHARED, 100, 100, 100, 100, 1])
    assert cancelled.copies.offloads
    assert cancelled.copies.loads
    cache.release(cancelled)
    cache.audit()
    return cache


def lose_a_free_slot(cache: BlockCache) -> None:
    cache._host.slots._used += 1


def free_a_cached_slot(cache: BlockCache) -> None:
    cache._host.slots._given_back.append(next(iter(cache._tree.hosted)).blocks[0])


def touch_a_slot_once_more(cache: BlockCache) -> None:
    cache._host.slots.begin_reading(next(iter(cache._tree.hosted)).blocks[:1])


def hold_a_slot_of_the_tree(cache: BlockCache) -> None:
    cache._host.slots.held.add(next(iter(cache._tree.hosted)).blocks[0])


def forget_what_is_arriving(cache: BlockCache) -> None:
    cache._host.slots.arriving.clear()


def forget_a_copy_that_is_pending(cache: BlockCache) -> None:
    cache._pending.clear()


def use_a_run_on_the_host(cache: BlockCache) -> None:
    next(iter(cache._tree.hosted)).uses += 1


def call_a_run_on_the_host_one_on_the_gpu(cache: BlockCache) -> None:
    next(iter(cache._tree.hosted)).on_host = False


def evict_from_the_host_in_another_order(cache: BlockCache) -> None:
    cache._tree.hosted.move_to_end(next(iter(cache._tree.hosted)))


@pytest.mark.parametrize(
    "corrupt",
    [
        lose_a_free_slot,
        free_a_cached_slot,
        touch_a_slot_once_more,
        hold_a_slot_of_the_tree,
        forget_what_is_arriving,
        forget_a_copy_that_is_pending,
        use_a_run_on_the_host,
        call_a_run_on_the_host_one_on_the_gpu,
        evict_from_the_host_in_another_order,
    ],
)
def test_a_contradiction_of_the_host_tier_is_noticed(
    corrupt: Callable[[BlockCache], None],
) -> None:
    cache = tiered_cache()
    corrupt(cache)
    with pytest.raises(AuditError):
        cache.audit()


def test_a_block_on_the_gpu_after_one_on_the_host_is_noticed() -> None:
    cache = BlockCache(num_blocks=8, block_size=4, host_blocks=8)
    done = cache.acquire(WHO, list(range(9)))
    cache.commit(done, 9)
    cache.release(done)
    run = next(iter(cache._tree.unused))
    head = run.cut_front(1)
    root = cache._tree.roots[WHO]
    root.children.clear()
    root.put_child(head)
    head.put_child(run)
    head.stamp = run.stamp
    head.on_host = True
    cache._pool._given_back.extend(head.blocks)
    head.blocks = cache._host.slots.take(1)
    cache._tree.hosted[head] = None
    cache._tree.evictable -= 1
    with pytest.raises(AuditError, match="a child is on the GPU"):
        cache.audit()
