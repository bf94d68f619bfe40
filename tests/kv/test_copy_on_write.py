"""Copy-on-write, as the index asks for it, with real KV."""

from __future__ import annotations

import pytest

from prefix_cache import BlockCache, Identity
from prefix_cache.kv import Scales

from .worker import POOLS, Worker

WHO = Identity(model="m")
PARENT = [1] * 20


@pytest.mark.parametrize(("dtype", "scales"), POOLS)
@pytest.mark.parametrize("child_first", [True, False])
def test_forks_that_write_to_a_shared_tail_each_have_their_own(
    dtype: str, scales: Scales | None, child_first: bool
) -> None:
    """In step, and then one ahead of the other; their tokens differ from the first on."""
    cache, worker = BlockCache(num_blocks=4), Worker(dtype, scales)
    parent = cache.acquire(WHO, PARENT)
    worker.write(parent, PARENT, first=0)
    child = cache.fork(parent)
    tokens = {parent.id: list(PARENT), child.id: list(PARENT)}
    order = [(child, 2), (parent, 3)] if child_first else [(parent, 3), (child, 2)]

    for sequence, token in [*order, order[0], order[0], order[1]]:
        appended = cache.append(sequence, [token])
        worker.pool.copy_blocks(appended.copies)
        worker.write(sequence, [token], first=len(tokens[sequence.id]))
        tokens[sequence.id].append(token)
        for each in (parent, child):
            assert worker.holds(each, tokens[each.id])


@pytest.mark.parametrize(("dtype", "scales"), POOLS)
def test_a_copy_is_intact_when_the_original_is_evicted_and_written_over(
    dtype: str, scales: Scales | None
) -> None:
    cache, worker = BlockCache(num_blocks=4), Worker(dtype, scales)
    parent = cache.acquire(WHO, PARENT)
    worker.write(parent, PARENT, first=0)
    child = cache.fork(parent)
    appended = cache.append(child, [2])
    assert appended.copies == ((1, 2),)
    worker.pool.copy_blocks(appended.copies)
    worker.write(child, [2], first=20)

    cache.release(parent)
    other = cache.acquire(WHO, [7] * 32)
    assert 1 in other.block_table
    worker.write(other, [7] * 32, first=0)

    assert worker.holds(child, [*PARENT, 2])
    assert worker.holds(other, [7] * 32)


@pytest.mark.parametrize(("dtype", "scales"), POOLS)
def test_without_the_copy_the_fork_would_have_lost_its_prefix(
    dtype: str, scales: Scales | None
) -> None:
    """The control of the tests above."""
    cache, worker = BlockCache(num_blocks=4), Worker(dtype, scales)
    parent = cache.acquire(WHO, PARENT)
    worker.write(parent, PARENT, first=0)
    child = cache.fork(parent)
    cache.append(child, [2])
    worker.write(child, [2], first=20)
    assert not worker.holds(child, [*PARENT, 2])


@pytest.mark.parametrize(("dtype", "scales"), POOLS)
def test_a_prefix_hit_is_the_kv_that_was_committed(dtype: str, scales: Scales | None) -> None:
    cache, worker = BlockCache(num_blocks=4), Worker(dtype, scales)
    first = cache.acquire(WHO, PARENT)
    worker.write(first, PARENT, first=0)
    cache.commit(first, 20)
    cache.release(first)

    second = cache.acquire(WHO, [*PARENT[:16], 5, 6])

    assert second.num_cached_tokens == 16
    assert worker.holds(second, PARENT[:16])
