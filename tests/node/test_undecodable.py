"""Bytes that are no message: the client learns what it sent, and the node does not mind."""

from __future__ import annotations

from typing import Any

import pytest
from grpc import StatusCode, aio

from prefix_cache.v1 import node_pb2
from tests.node.nodes import RunningNode, status_of

SERVICE = "/prefix_cache.v1.NodeService"


def bare_channel(running: RunningNode) -> Any:
    """A channel whose calls send and receive bytes; the stubs have no type for these."""
    return aio.insecure_channel(running.address)


@pytest.mark.parametrize("data", [b"\xff\xff\xff", b"\x0a\x04\x0a\x02\x0a\x7f"])
async def test_bytes_that_are_no_request_are_the_clients_mistake(
    running: RunningNode, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    async with bare_channel(running) as channel:
        method = f"{SERVICE}/Acquire"
        assert await status_of(channel.unary_unary(method)(data)) == (
            StatusCode.INVALID_ARGUMENT,
            "INVALID_MESSAGE",
            {"method": method, "length": str(len(data))},
        )
    assert caplog.record_tuples == []


async def test_bytes_that_are_no_watch_are_refused_likewise(
    running: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    async with bare_channel(running) as channel:
        method = f"{SERVICE}/Watch"
        assert await status_of(channel.unary_stream(method)(b"\xff").read()) == (
            StatusCode.INVALID_ARGUMENT,
            "INVALID_MESSAGE",
            {"method": method, "length": "1"},
        )
    assert caplog.record_tuples == []


async def test_bytes_that_are_no_step_end_the_session_and_its_sequences(
    running: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    opening = node_pb2.SessionRequest(open=node_pb2.SessionOpen())
    acquire = node_pb2.Operation(
        sequence_id=1, acquire=node_pb2.AcquireOperation(prompt=node_pb2.Prompt(tokens=bytes(64)))
    )
    opening.operations.append(acquire)
    async with bare_channel(running) as channel:
        method = f"{SERVICE}/Session"
        call = channel.stream_stream(method)()
        await call.write(opening.SerializeToString())
        await call.read()
        assert running.node.cache.stats().live_sequences == 1

        await call.write(b"\xff\xff\xff")
        assert await status_of(call.read()) == (
            StatusCode.INVALID_ARGUMENT,
            "INVALID_MESSAGE",
            {"method": method, "length": "3"},
        )
    assert running.node.cache.stats().live_sequences == 0
    assert caplog.record_tuples == []
