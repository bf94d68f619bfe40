"""Leases over the bare wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from google.protobuf import duration_pb2
from grpc import StatusCode

from prefix_cache.v1 import node_pb2
from tests.node.nodes import RunningNode, packed, status_of

if TYPE_CHECKING:
    from prefix_cache.v1.node_pb2_grpc import NodeServiceAsyncStub  # exists in the stubs only

PROMPT = node_pb2.Prompt(tokens=packed(*range(40)))


@pytest.mark.parametrize(("asked_s", "granted_s"), [(5, 5), (600, 600), (601, 600)])
async def test_the_lease_granted_is_in_the_answer(
    stub: NodeServiceAsyncStub, asked_s: int, granted_s: int
) -> None:
    asked, granted = (duration_pb2.Duration(seconds=s) for s in (asked_s, granted_s))
    acquired = await stub.Acquire(node_pb2.AcquireRequest(prompt=PROMPT, lease=asked))
    assert acquired.lease == granted
    forked = await stub.Fork(node_pb2.ForkRequest(sequence_id=acquired.sequence_id, lease=asked))
    assert forked.lease == granted
    unasked = await stub.Fork(node_pb2.ForkRequest(sequence_id=acquired.sequence_id))
    assert unasked.lease == duration_pb2.Duration(seconds=60)


@pytest.mark.parametrize(
    ("lease", "value"),
    [
        (duration_pb2.Duration(), "0.0"),
        (duration_pb2.Duration(nanos=999_999), "0.000999999"),
        (duration_pb2.Duration(seconds=-1), "-1.0"),
        (duration_pb2.Duration(seconds=2**40), "1099511627776.0"),
    ],
)
async def test_a_lease_of_no_time_opens_nothing(
    running: RunningNode, stub: NodeServiceAsyncStub, lease: duration_pb2.Duration, value: str
) -> None:
    call = stub.Acquire(node_pb2.AcquireRequest(prompt=PROMPT, lease=lease))
    assert await status_of(call) == (
        StatusCode.INVALID_ARGUMENT,
        "INVALID_ARGUMENT",
        {"name": "lease_s", "value": value},
    )
    assert running.node.cache.stats().live_sequences == 0


async def test_every_call_on_an_expired_sequence_says_that_its_lease_ran_out(
    running: RunningNode, stub: NodeServiceAsyncStub
) -> None:
    lease = duration_pb2.Duration(nanos=5_000_000)
    acquired = await stub.Acquire(node_pb2.AcquireRequest(prompt=PROMPT, lease=lease))
    handle = acquired.sequence_id
    while (await stub.GetStats(node_pb2.GetStatsRequest())).live_sequences:
        pass
    assert running.node.leases_expired == 1
    expired = {"sequence_id": str(handle), "lease_s": "0.005"}
    for call in (
        stub.Append(node_pb2.AppendRequest(sequence_id=handle, tokens=packed(1))),
        stub.Commit(node_pb2.CommitRequest(sequence_id=handle, num_tokens=1)),
        stub.Fork(node_pb2.ForkRequest(sequence_id=handle)),
        stub.Release(node_pb2.ReleaseRequest(sequence_id=handle)),
    ):
        assert await status_of(call) == (StatusCode.NOT_FOUND, "LEASE_EXPIRED", expired)
