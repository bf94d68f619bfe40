"""Both clients of a node make every call and raise typed errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prefix_cache import Identity, errors
from prefix_cache.client import Appended, Committed
from prefix_cache.index import Prefix, Stats
from tests.node.nodes import RunningNode

WHO = Identity("m")


async def test_a_sequence_lives_from_acquire_to_release(client: Any) -> None:
    sequence = await client.acquire(WHO, list(range(40)))
    assert sequence.id > 0
    assert (sequence.num_cached_tokens, sequence.num_tokens) == (0, 40)
    assert sequence.block_table.dtype == np.int32
    assert sequence.block_table.tolist() == [0, 1, 2]
    assert not sequence.block_table.flags.writeable

    assert await client.append(sequence.id, [1] * 10) == Appended((3,), (), 50)
    prefix = Prefix(bytes.fromhex("e8033acfc9ae505fb3916e80027aec68"), 32)
    assert await client.commit(sequence.id, 45) == Committed(45, prefix)
    assert await client.commit(sequence.id, 1) == Committed(45, prefix)

    match = await client.match(WHO, [*range(40), 1])
    assert match.num_cached_tokens == 32
    assert match.block_ids.tolist() == [0, 1]

    fork = await client.fork(sequence.id)
    assert await client.append(fork, [2]) == Appended((), ((3, 4),), 51)
    await client.release(sequence.id)
    await client.release(fork)
    assert await client.stats() == Stats(
        num_blocks=64,
        free=62,
        cached=2,
        private=0,
        evictable=2,
        live_sequences=0,
        query_tokens=40,
        hit_tokens=0,
        evicted_blocks=0,
        recomputed_tokens=0,
        host_blocks=0,
        host_free=0,
        host_cached=0,
        loaded_tokens=0,
        offloaded_blocks=0,
        rejected_offloads=0,
        pending_copies=0,
    )
    assert await client.reset() == 2
    assert (await client.stats()).free == 64


async def test_info_says_what_the_node_is(client: Any, running: RunningNode) -> None:
    info = await client.info()
    assert (info.name, info.version) == ("node", "0.1.0")
    assert (info.block_size, info.num_blocks) == (16, 64)
    assert (info.model, info.kv_dtype, info.draining) == ("", "", False)
    assert info.incarnation == running.node.incarnation
    assert info.worker_epoch == 0
    assert info.max_message_bytes == 67_108_864


async def test_refused_by_the_node_with_the_values_concerned(client: Any) -> None:
    with pytest.raises(errors.InvalidTokens, match="the prompt is empty"):
        await client.acquire(WHO, [])
    with pytest.raises(errors.PromptTooLarge) as too_large:
        await client.acquire(WHO, [0] * 1025)
    assert too_large.value.details == {"needed": "65", "num_blocks": "64"}
    with pytest.raises(errors.InvalidExtraKeys):
        await client.match(WHO, [1], [(5, 5, b"k")])

    sequence = await client.acquire(WHO, [0] * 1000)
    with pytest.raises(errors.PoolExhausted) as exhausted:
        await client.acquire(WHO, [1] * 30)
    assert type(exhausted.value) is errors.PoolExhausted
    assert exhausted.value.details == {"needed": "2", "available": "1"}
    with pytest.raises(errors.CommitBeyondTokens):
        await client.commit(sequence.id, 1001)
    with pytest.raises(errors.SequencesLive):
        await client.reset()

    await client.release(sequence.id)
    with pytest.raises(errors.UnknownSequence, match=str(sequence.id)) as unknown:
        await client.release(sequence.id)
    assert unknown.value.details == {"sequence_id": str(sequence.id)}
    assert isinstance(unknown.value, LookupError)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([-1], errors.InvalidTokens),
        ([2**32], errors.InvalidTokens),
        (b"12345", errors.InvalidTokens),
        ([1.0], errors.InvalidTokenType),
        ([[1]], errors.InvalidTokenType),
        (np.zeros((2, 2), dtype=np.int32), errors.InvalidTokenType),
        ("text", errors.InvalidTokenType),
    ],
)
async def test_tokens_that_are_none_never_leave(
    client: Any, running: RunningNode, tokens: Any, expected: type[Exception]
) -> None:
    sequence = await client.acquire(WHO, [1])
    before = running.node.cache.stats()
    with pytest.raises(expected):
        await client.acquire(WHO, tokens)
    with pytest.raises(expected):
        await client.match(WHO, tokens)
    with pytest.raises(expected):
        await client.append(sequence.id, tokens)
    assert running.node.cache.stats() == before


async def test_numbers_that_no_message_holds_are_refused(client: Any) -> None:
    for handle in (-1, 2**64, "5", None):
        with pytest.raises(errors.InvalidArgument, match="sequence_id is"):
            await client.release(handle)
    with pytest.raises(errors.InvalidArgument, match="num_tokens is -1"):
        await client.commit(5, -1)
    with pytest.raises(errors.InvalidExtraKeys):
        await client.match(WHO, [1], [(0, 5, "text")])
