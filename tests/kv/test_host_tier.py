"""The host tier, as the index asks for it, with real KV."""

from __future__ import annotations

import pytest

from prefix_cache import BlockCache, Identity, Sequence
from prefix_cache.errors import CorruptBlock
from prefix_cache.kv import Scales

from .worker import POOLS, Worker

WHO = Identity(model="m")
FIRST, SECOND = [1] * 48, [2] * 64


def acquire(cache: BlockCache, worker: Worker, tokens: list[int]) -> Sequence:
    """Acquire, and make the copies of the reply in their order."""
    sequence = cache.acquire(WHO, tokens)
    worker.pool.offload(sequence.copies.offloads)
    worker.pool.load(sequence.copies.loads)
    if sequence.copies.copy_id:
        cache.acknowledge(sequence.copies.copy_id)
    return sequence


def serve(cache: BlockCache, worker: Worker, tokens: list[int]) -> None:
    sequence = acquire(cache, worker, tokens)
    worker.write(sequence, tokens, first=0)
    cache.commit(sequence, len(tokens))
    cache.release(sequence)


@pytest.mark.parametrize(("dtype", "scales"), POOLS)
def test_an_evicted_prefix_comes_back_from_the_host(dtype: str, scales: Scales | None) -> None:
    """Its blocks are taken from the prompt that evicted it, one of which goes to the host."""
    cache, worker = BlockCache(num_blocks=4, host_blocks=4), Worker(dtype, scales)
    serve(cache, worker, FIRST)
    serve(cache, worker, SECOND)

    again = acquire(cache, worker, [*FIRST, 3])

    assert (again.num_cached_tokens, again.num_loaded_tokens) == (48, 48)
    assert len(again.copies.offloads) == 1
    assert worker.holds(again, FIRST)


def test_a_load_whose_offload_was_left_out_is_noticed() -> None:
    """The control of the test above: a worker that skips a copy does not serve foreign KV."""
    cache, worker = BlockCache(num_blocks=4, host_blocks=4), Worker("float32", None)
    serve(cache, worker, FIRST)
    second = cache.acquire(WHO, SECOND)
    worker.pool.offload(second.copies.offloads[:-1])
    cache.acknowledge(second.copies.copy_id)
    cache.release(second)

    with pytest.raises(CorruptBlock, match="nothing was offloaded to slot"):
        acquire(cache, worker, [*FIRST, 3])
