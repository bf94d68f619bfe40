"""The Session stream over the bare wire."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio
from grpc import aio

from prefix_cache.v1 import node_pb2
from tests.node.nodes import RunningNode, packed, status_of

if TYPE_CHECKING:
    from prefix_cache.v1.node_pb2_grpc import NodeServiceAsyncStub  # exists in the stubs only


def acquire(number: int, num_tokens: int) -> node_pb2.Operation:
    prompt = node_pb2.Prompt(tokens=packed(*range(num_tokens)))
    return node_pb2.Operation(sequence_id=number, acquire=node_pb2.AcquireOperation(prompt=prompt))


def append(number: int, *tokens: int) -> node_pb2.Operation:
    return node_pb2.Operation(
        sequence_id=number, append=node_pb2.AppendOperation(tokens=packed(*tokens))
    )


def commit(number: int, num_tokens: int) -> node_pb2.Operation:
    return node_pb2.Operation(
        sequence_id=number, commit=node_pb2.CommitOperation(num_tokens=num_tokens)
    )


def fork(number: int, parent: int) -> node_pb2.Operation:
    return node_pb2.Operation(
        sequence_id=number, fork=node_pb2.ForkOperation(parent_sequence_id=parent)
    )


def release(number: int) -> node_pb2.Operation:
    return node_pb2.Operation(sequence_id=number, release=node_pb2.ReleaseOperation())


class Stream:
    """A session spoken by hand: one message out, one message in."""

    def __init__(self, stub: NodeServiceAsyncStub) -> None:
        self.call: Any = stub.Session()

    async def open(self, **fields: Any) -> node_pb2.SessionResponse:
        return await self.send(node_pb2.SessionRequest(open=node_pb2.SessionOpen(**fields)))

    async def step(self, number: int, *operations: node_pb2.Operation) -> list[Any]:
        response = await self.send(node_pb2.SessionRequest(step=number, operations=operations))
        assert response.step == number
        return list(response.results)

    async def send(self, request: node_pb2.SessionRequest) -> node_pb2.SessionResponse:
        await self.call.write(request)
        response = await self.call.read()
        assert isinstance(response, node_pb2.SessionResponse)
        return response


@pytest_asyncio.fixture
async def stream(stub: NodeServiceAsyncStub) -> AsyncIterator[Stream]:
    stream = Stream(stub)
    yield stream
    stream.call.cancel()


async def test_the_first_answer_says_what_the_node_is(running: RunningNode, stream: Stream) -> None:
    response = await stream.open(block_size=16, model="m", kv_dtype="fp8")
    assert response == node_pb2.SessionResponse(
        opened=node_pb2.SessionOpened(
            block_size=16, num_blocks=64, incarnation=running.node.incarnation
        )
    )


async def test_results_come_in_the_order_of_the_operations(stream: Stream) -> None:
    await stream.open()
    results = await stream.step(
        1,
        acquire(1, 40),
        commit(1, 40),
        fork(2, 1),
        append(2, 7),
        acquire(3, 40),
        release(1),
    )
    assert results == [
        node_pb2.OperationResult(
            acquire=node_pb2.AcquireResult(num_tokens=40, block_table=packed(0, 1, 2))
        ),
        node_pb2.OperationResult(
            commit=node_pb2.CommitResult(
                num_committed_tokens=40,
                num_findable_tokens=32,
                block_hash=bytes.fromhex("93a0b30d31110179686d8d2e5b1fbad8"),
            )
        ),
        node_pb2.OperationResult(fork=node_pb2.ForkResult()),
        node_pb2.OperationResult(
            append=node_pb2.AppendResult(copies=[node_pb2.BlockCopy(src=2, dst=3)], num_tokens=41)
        ),
        node_pb2.OperationResult(
            acquire=node_pb2.AcquireResult(
                num_cached_tokens=32, num_tokens=40, block_table=packed(0, 1, 4)
            )
        ),
        node_pb2.OperationResult(release=node_pb2.ReleaseResult()),
    ]


async def test_the_first_message_may_carry_operations_too(stream: Stream) -> None:
    response = await stream.send(
        node_pb2.SessionRequest(open=node_pb2.SessionOpen(), step=9, operations=[acquire(1, 5)])
    )
    assert response.step == 9
    assert response.opened.num_blocks == 64
    assert response.results[0].acquire.num_tokens == 5


async def test_a_failed_operation_changes_nothing_and_the_others_go_on(
    running: RunningNode, stream: Stream
) -> None:
    await stream.open()
    results = await stream.step(
        1,
        acquire(1, 40),
        acquire(1, 20),
        acquire(2, 65 * 16),
        append(5, 1),
        commit(1, 41),
        fork(1, 1),
        fork(6, 5),
        release(5),
        node_pb2.Operation(sequence_id=8),
        commit(1, 40),
    )
    errors = [(r.error.code, r.error.reason, dict(r.error.metadata)) for r in results[1:-1]]
    assert errors == [
        (grpc.StatusCode.ALREADY_EXISTS.value[0], "SEQUENCE_EXISTS", {"sequence_id": "1"}),
        (
            grpc.StatusCode.INVALID_ARGUMENT.value[0],
            "PROMPT_TOO_LARGE",
            {"needed": "65", "num_blocks": "64"},
        ),
        (grpc.StatusCode.NOT_FOUND.value[0], "UNKNOWN_SEQUENCE", {"sequence_id": "5"}),
        (
            grpc.StatusCode.OUT_OF_RANGE.value[0],
            "COMMIT_BEYOND_TOKENS",
            {"num_tokens": "41", "sequence_tokens": "40"},
        ),
        (grpc.StatusCode.ALREADY_EXISTS.value[0], "SEQUENCE_EXISTS", {"sequence_id": "1"}),
        (grpc.StatusCode.NOT_FOUND.value[0], "UNKNOWN_SEQUENCE", {"sequence_id": "5"}),
        (grpc.StatusCode.NOT_FOUND.value[0], "UNKNOWN_SEQUENCE", {"sequence_id": "5"}),
        (grpc.StatusCode.INVALID_ARGUMENT.value[0], "INVALID_ARGUMENT", {}),
    ]
    assert results[-1].commit.num_committed_tokens == 40
    stats = running.node.cache.stats()
    assert (stats.live_sequences, stats.cached, stats.private) == (1, 2, 1)


async def test_the_same_numbers_in_two_sessions_are_different_sequences(
    running: RunningNode, stub: NodeServiceAsyncStub
) -> None:
    first, second = Stream(stub), Stream(stub)
    await first.open()
    await second.open()
    await first.step(1, acquire(1, 40))
    (result,) = await second.step(1, acquire(1, 20))
    assert result.acquire.block_table == packed(3, 4)
    await second.step(2, release(1))
    (result,) = await first.step(2, append(1, 7))
    assert result.append.num_tokens == 41
    await first.call.done_writing()
    await first.call.read()
    assert running.node.cache.stats().live_sequences == 0


async def test_a_number_can_be_used_again_after_release(stream: Stream) -> None:
    await stream.open()
    results = await stream.step(1, acquire(1, 40), release(1), acquire(1, 20))
    assert results[2].acquire.num_tokens == 20


async def test_a_session_that_ends_has_released_its_sequences(
    running: RunningNode, stream: Stream
) -> None:
    await stream.open()
    await stream.step(1, acquire(1, 40), commit(1, 20), acquire(2, 100), fork(3, 2))
    await stream.call.done_writing()
    assert await stream.call.read() is aio.EOF
    assert await stream.call.code() is grpc.StatusCode.OK
    stats = running.node.cache.stats()
    assert (stats.live_sequences, stats.private, stats.cached, stats.evictable) == (0, 0, 1, 1)


async def test_a_session_opens_before_anything_else(stream: Stream) -> None:
    with pytest.raises(aio.AioRpcError, match="first message"):
        await stream.step(1, acquire(1, 40))


async def test_a_session_opens_only_once(running: RunningNode, stream: Stream) -> None:
    await stream.open()
    await stream.step(1, acquire(1, 40))
    status = await status_of(stream.open())
    assert status == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_ARGUMENT", {})
    assert running.node.cache.stats().live_sequences == 0


async def test_an_engine_of_another_block_size_is_refused(stream: Stream) -> None:
    assert await status_of(stream.open(block_size=32)) == (
        grpc.StatusCode.FAILED_PRECONDITION,
        "IDENTITY_MISMATCH",
        {"field": "block_size", "client": "32", "node": "16"},
    )
