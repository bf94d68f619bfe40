"""Prompts in delta form over the bare wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc import StatusCode

from prefix_cache.v1 import node_pb2
from tests.node.nodes import packed, status_of

if TYPE_CHECKING:
    from prefix_cache.v1.node_pb2_grpc import NodeServiceAsyncStub  # exists in the stubs only

PROMPT = node_pb2.Prompt(tokens=packed(*range(40)))


def delta(committed: node_pb2.CommitResponse, *tokens: int) -> node_pb2.Prompt:
    """A prompt that goes on from what was committed."""
    return node_pb2.Prompt(
        parent_block_hash=committed.block_hash,
        parent_num_tokens=committed.num_findable_tokens,
        tokens=packed(*tokens),
    )


async def committed(stub: NodeServiceAsyncStub, num_tokens: int) -> node_pb2.CommitResponse:
    """A released sequence of 40 tokens of which that many were committed."""
    handle = (await stub.Acquire(node_pb2.AcquireRequest(prompt=PROMPT))).sequence_id
    response = await stub.Commit(node_pb2.CommitRequest(sequence_id=handle, num_tokens=num_tokens))
    await stub.Release(node_pb2.ReleaseRequest(sequence_id=handle))
    return response


async def test_a_delta_finds_what_the_whole_prompt_would(stub: NodeServiceAsyncStub) -> None:
    prompt = delta(await committed(stub, 40), *range(32, 40), 7, 7)
    matched = await stub.Match(node_pb2.MatchRequest(prompt=prompt))
    assert (matched.num_cached_tokens, matched.block_ids) == (32, packed(0, 1))
    acquired = await stub.Acquire(node_pb2.AcquireRequest(prompt=prompt))
    assert (acquired.num_cached_tokens, acquired.num_tokens) == (32, 42)
    assert acquired.block_table == packed(0, 1, 2)


async def test_nothing_findable_leaves_nothing_to_go_on_from(stub: NodeServiceAsyncStub) -> None:
    assert await committed(stub, 15) == node_pb2.CommitResponse(num_committed_tokens=15)


async def test_a_delta_after_another_number_of_tokens_or_under_another_salt_is_unknown(
    stub: NodeServiceAsyncStub,
) -> None:
    known = delta(await committed(stub, 40), 1)
    for field, value in (
        ("parent_num_tokens", 16),
        ("parent_num_tokens", 33),
        ("parent_num_tokens", 0),
        ("parent_block_hash", b""),
        ("identity", node_pb2.Identity(salt="another")),
    ):
        other = node_pb2.Prompt()
        other.CopyFrom(known)
        other.ClearField(field)  # type: ignore[arg-type]
        other.MergeFrom(node_pb2.Prompt(**{field: value}))  # type: ignore[arg-type]
        code, reason, _ = await status_of(stub.Acquire(node_pb2.AcquireRequest(prompt=other)))
        assert (code, reason) == (StatusCode.FAILED_PRECONDITION, "UNKNOWN_PREFIX")


async def test_a_reset_forgets_the_prefixes(stub: NodeServiceAsyncStub) -> None:
    prompt = delta(await committed(stub, 40), 1)
    await stub.Reset(node_pb2.ResetRequest())
    code, reason, _ = await status_of(stub.Match(node_pb2.MatchRequest(prompt=prompt)))
    assert (code, reason) == (StatusCode.FAILED_PRECONDITION, "UNKNOWN_PREFIX")
