"""One session: the stream of an engine and the sequences that belong to it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from prefix_cache.errors import InvalidArgument, MessageTooLarge, WorkerRestarted
from prefix_cache.node.node import Node
from prefix_cache.node.quotas import Holding
from prefix_cache.node.sequences import NumberedSequences
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import (
    acquired_to_wire,
    appended_to_wire,
    committed_to_wire,
    error_to_operation,
    reportable,
)

# How long a step of many operations may keep others waiting.
_SLICE_S = 0.005

# Sequences ended in one go at the end: some milliseconds' work.
_BATCH = 100


class Session:
    """Answers the messages of one stream; its sequences end with ``aclose``.

    ``on_lost`` is called when another life of the worker has begun: the sequences have ended, no
    further message may be answered, and ``lost`` says why.
    """

    def __init__(self, node: Node, on_lost: Callable[[], object]) -> None:
        self._node = node
        self._sequences = NumberedSequences(node)
        self._holding = Holding()
        self._is_open = False
        self._on_lost = on_lost
        self.lost: WorkerRestarted | None = None

    async def answer(self, request: node_pb2.SessionRequest) -> node_pb2.SessionResponse:
        """Carry out one message.  What it raises ends the stream."""
        self._check_size(request)
        response = node_pb2.SessionResponse(step=request.step)
        if request.HasField("open") == self._is_open:
            raise InvalidArgument("the first message of a session carries `open`, no other does")
        if not self._is_open:
            response.opened.CopyFrom(self._opened(request.open))
            self._is_open = True
            self._node.on_claims_lost.add(self._lose)
        until = monotonic() + _SLICE_S
        for operation in request.operations:
            if monotonic() >= until:
                await asyncio.sleep(0)
                until = monotonic() + _SLICE_S
            if self.lost is not None:
                raise self.lost
            response.results.append(self._result(operation))
        return response

    async def aclose(self) -> None:
        """End every sequence and withdraw what copies are pending, many of them in several goes."""
        try:
            while self._sequences.end_some(_BATCH):  # noqa: ASYNC110  (others get a turn)
                await asyncio.sleep(0)
        finally:
            self._sequences.end_all()
            self._node.on_claims_lost.discard(self._lose)

    def _check_size(self, request: node_pb2.SessionRequest) -> None:
        # Small operations have answers ten times as large, and all of them are kept until the last.
        count, limit = len(request.operations), self._node.config.max_operations_per_step
        if count > limit:
            raise MessageTooLarge(
                f"step {request.step} has {count} operations, expected at most {limit}: "
                "send them in several steps",
                step=request.step,
                operations=count,
                limit=limit,
            )

    def _lose(self) -> None:
        self._node.on_claims_lost.discard(self._lose)
        self._sequences.end_all()
        self.lost = WorkerRestarted(
            "the worker's KV memory is gone, and this session's sequences with it: "
            f"the worker's epoch is {self._node.epochs.current} now",
            current=self._node.epochs.current,
        )
        self._on_lost()

    def _opened(self, opening: node_pb2.SessionOpen) -> node_pb2.SessionOpened:
        self._node.check_not_draining()
        self._node.check_client(opening.block_size, opening.model, opening.kv_dtype)
        self._node.meet_worker(opening.worker_epoch)
        return node_pb2.SessionOpened(
            block_size=self._node.config.block_size,
            num_blocks=self._node.config.num_blocks,
            host_blocks=self._node.config.host_blocks,
            incarnation=self._node.incarnation,
        )

    def _result(self, operation: node_pb2.Operation) -> node_pb2.OperationResult:
        try:
            return self._carry_out(operation)
        except Exception as error:
            return node_pb2.OperationResult(error=error_to_operation(reportable(error)))

    def _carry_out(self, operation: node_pb2.Operation) -> node_pb2.OperationResult:
        number = operation.sequence_id
        result = node_pb2.OperationResult()
        match operation.WhichOneof("kind"):
            case "acquire":
                sequence = self._sequences.acquire(number, operation.acquire, self._holding)
                acquired_to_wire(result.acquire, sequence)
            case "append":
                appended, num_tokens = self._sequences.append(number, operation.append.tokens)
                appended_to_wire(result.append, appended, num_tokens)
            case "commit":
                sequence = self._sequences.commit(number, operation.commit.num_tokens)
                committed_to_wire(
                    result.commit, sequence.num_committed_tokens, sequence.findable_prefix
                )
            case "fork":
                self._sequences.fork(number, operation.fork.parent_sequence_id, self._holding)
                result.fork.SetInParent()
            case "release":
                self._sequences.release(number)
                result.release.SetInParent()
            case "acknowledge":
                self._sequences.copies.acknowledge(operation.acknowledge)
                result.acknowledge.SetInParent()
            case _:
                raise InvalidArgument(f"the operation on sequence {number} says not what to do")
        return result
