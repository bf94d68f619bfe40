"""Every unary call over the bare wire, with the bytes that travel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf import duration_pb2
from grpc import StatusCode

from prefix_cache.v1 import node_pb2
from tests.node.nodes import RunningNode, packed, status_of

if TYPE_CHECKING:
    from prefix_cache.v1.node_pb2_grpc import NodeServiceAsyncStub  # exists in the stubs only


def prompt(num_tokens: int, **fields: object) -> node_pb2.Prompt:
    """A prompt of tokens 0, 1, 2... of model "m"."""
    return node_pb2.Prompt(
        identity=node_pb2.Identity(model="m"),
        tokens=packed(*range(num_tokens)),
        **fields,  # type: ignore[arg-type]
    )


async def acquire(stub: NodeServiceAsyncStub, num_tokens: int) -> int:
    request = node_pb2.AcquireRequest(prompt=prompt(num_tokens))
    return (await stub.Acquire(request)).sequence_id


async def test_a_sequence_lives_from_acquire_to_release(stub: NodeServiceAsyncStub) -> None:
    opened = await stub.Acquire(node_pb2.AcquireRequest(prompt=prompt(40)))
    assert opened.num_cached_tokens == 0
    assert opened.num_tokens == 40
    assert opened.block_table == packed(0, 1, 2)
    assert opened.lease == duration_pb2.Duration(seconds=60)
    handle = opened.sequence_id

    appended = await stub.Append(
        node_pb2.AppendRequest(sequence_id=handle, tokens=packed(*range(40, 50)))
    )
    assert appended.num_tokens == 50
    assert appended.new_block_ids == packed(3)
    assert not appended.copies

    committed = await stub.Commit(node_pb2.CommitRequest(sequence_id=handle, num_tokens=50))
    assert committed == node_pb2.CommitResponse(
        num_committed_tokens=50,
        num_findable_tokens=48,
        block_hash=bytes.fromhex("37e6ccdd7aece7f088f9d3f6770a4593"),
    )

    found = await stub.Match(node_pb2.MatchRequest(prompt=prompt(49)))
    assert found.num_cached_tokens == 48
    assert found.block_ids == packed(0, 1, 2)

    await stub.Release(node_pb2.ReleaseRequest(sequence_id=handle))
    stats = await stub.GetStats(node_pb2.GetStatsRequest())
    assert stats == node_pb2.GetStatsResponse(
        num_blocks=64, free=61, cached=3, evictable=3, query_tokens=40
    )


async def test_a_fork_gets_a_handle_and_copies_before_it_writes(stub: NodeServiceAsyncStub) -> None:
    parent = await acquire(stub, 20)
    child = (await stub.Fork(node_pb2.ForkRequest(sequence_id=parent))).sequence_id
    assert child != parent
    appended = await stub.Append(node_pb2.AppendRequest(sequence_id=child, tokens=packed(7)))
    assert list(appended.copies) == [node_pb2.BlockCopy(src=1, dst=2)]
    assert appended.new_block_ids == b""
    assert appended.num_tokens == 21


async def test_reset_drops_what_is_cached_once_nothing_lives(stub: NodeServiceAsyncStub) -> None:
    handle = await acquire(stub, 40)
    await stub.Commit(node_pb2.CommitRequest(sequence_id=handle, num_tokens=40))
    assert await status_of(stub.Reset(node_pb2.ResetRequest())) == (
        StatusCode.FAILED_PRECONDITION,
        "SEQUENCES_LIVE",
        {"live": "1"},
    )
    await stub.Release(node_pb2.ReleaseRequest(sequence_id=handle))
    assert (await stub.Reset(node_pb2.ResetRequest())).dropped_blocks == 2
    assert (await stub.Match(node_pb2.MatchRequest(prompt=prompt(40)))).num_cached_tokens == 0


async def test_info_says_what_the_node_is(running: RunningNode, stub: NodeServiceAsyncStub) -> None:
    assert await stub.GetInfo(node_pb2.GetInfoRequest()) == node_pb2.GetInfoResponse(
        name="node",
        version="0.1.0",
        block_size=16,
        num_blocks=64,
        incarnation=running.node.incarnation,
        max_message_bytes=64 * 1024 * 1024,
    )
    assert running.node.incarnation != 0


async def test_an_empty_kv_dtype_means_bfloat16(stub: NodeServiceAsyncStub) -> None:
    handle = await acquire(stub, 33)
    await stub.Commit(node_pb2.CommitRequest(sequence_id=handle, num_tokens=32))
    named = node_pb2.Prompt(
        identity=node_pb2.Identity(model="m", kv_dtype="bfloat16"), tokens=packed(*range(33))
    )
    assert (await stub.Match(node_pb2.MatchRequest(prompt=named))).num_cached_tokens == 32


BAD_PROMPTS = {
    "no tokens": (prompt(0), StatusCode.INVALID_ARGUMENT, "INVALID_TOKENS", {}),
    "bytes that are no tokens": (
        node_pb2.Prompt(tokens=b"12345"),
        StatusCode.INVALID_ARGUMENT,
        "INVALID_TOKENS",
        {"length": "5"},
    ),
    "an extra key that ends before it starts": (
        prompt(20, extra_keys=[node_pb2.ExtraKey(start=3, end=3, key=b"k")]),
        StatusCode.INVALID_ARGUMENT,
        "INVALID_EXTRA_KEYS",
        {"value": "(3, 3, b'k')"},
    ),
    "another block size": (
        prompt(20, block_size=32),
        StatusCode.FAILED_PRECONDITION,
        "IDENTITY_MISMATCH",
        {"field": "block_size", "client": "32", "node": "16"},
    ),
    "a delta after what is not known": (
        prompt(20, parent_block_hash=b"h" * 16, parent_num_tokens=16),
        StatusCode.FAILED_PRECONDITION,
        "UNKNOWN_PREFIX",
        {"num_tokens": "16", "block_hash": "68" * 16},
    ),
}


@pytest.mark.parametrize("case", BAD_PROMPTS)
async def test_a_bad_prompt_is_refused_by_match_and_acquire(
    running: RunningNode, stub: NodeServiceAsyncStub, case: str
) -> None:
    bad, *expected = BAD_PROMPTS[case]
    before = running.node.cache.stats()
    assert await status_of(stub.Match(node_pb2.MatchRequest(prompt=bad))) == tuple(expected)
    assert await status_of(stub.Acquire(node_pb2.AcquireRequest(prompt=bad))) == tuple(expected)
    assert running.node.cache.stats() == before


async def test_a_prompt_larger_than_the_pool_is_the_clients_mistake(
    stub: NodeServiceAsyncStub,
) -> None:
    call = stub.Acquire(node_pb2.AcquireRequest(prompt=prompt(64 * 16 + 1)))
    assert await status_of(call) == (
        StatusCode.INVALID_ARGUMENT,
        "PROMPT_TOO_LARGE",
        {"needed": "65", "num_blocks": "64"},
    )


async def test_a_pool_that_is_full_now_says_what_is_missing(stub: NodeServiceAsyncStub) -> None:
    handle = await acquire(stub, 62 * 16)
    exhausted = (StatusCode.RESOURCE_EXHAUSTED, "POOL_EXHAUSTED", {"needed": "3", "available": "2"})
    second = node_pb2.Prompt(tokens=packed(*range(48)))
    assert await status_of(stub.Acquire(node_pb2.AcquireRequest(prompt=second))) == exhausted
    await stub.Release(node_pb2.ReleaseRequest(sequence_id=handle))
    await stub.Acquire(node_pb2.AcquireRequest(prompt=second))


async def test_handles_that_name_nothing_are_not_found(stub: NodeServiceAsyncStub) -> None:
    released = await acquire(stub, 20)
    await stub.Release(node_pb2.ReleaseRequest(sequence_id=released))
    for handle in (0, 1, 2**64 - 1, released):
        not_found = (StatusCode.NOT_FOUND, "UNKNOWN_SEQUENCE", {"sequence_id": str(handle)})
        for call in (
            stub.Append(node_pb2.AppendRequest(sequence_id=handle, tokens=packed(1))),
            stub.Commit(node_pb2.CommitRequest(sequence_id=handle, num_tokens=1)),
            stub.Fork(node_pb2.ForkRequest(sequence_id=handle)),
            stub.Release(node_pb2.ReleaseRequest(sequence_id=handle)),
        ):
            assert await status_of(call) == not_found


async def test_a_commit_beyond_the_tokens_is_out_of_range(stub: NodeServiceAsyncStub) -> None:
    handle = await acquire(stub, 20)
    call = stub.Commit(node_pb2.CommitRequest(sequence_id=handle, num_tokens=21))
    assert await status_of(call) == (
        StatusCode.OUT_OF_RANGE,
        "COMMIT_BEYOND_TOKENS",
        {"num_tokens": "21", "sequence_tokens": "20"},
    )
