"""One session: the stream of an engine and the sequences that belong to it."""

from __future__ import annotations

from prefix_cache.errors import InvalidArgument, Unsupported
from prefix_cache.node.node import Node
from prefix_cache.node.sequences import NumberedSequences
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import block_ids_to_wire, error_to_operation, reportable


class Session:
    """Answers the messages of one stream; its sequences end with ``close``."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sequences = NumberedSequences(node)
        self._is_open = False

    def answer(self, request: node_pb2.SessionRequest) -> node_pb2.SessionResponse:
        """Carry out one message.  What it raises ends the stream."""
        response = node_pb2.SessionResponse(step=request.step)
        if request.HasField("open") == self._is_open:
            raise InvalidArgument("the first message of a session carries `open`, no other does")
        if not self._is_open:
            response.opened.CopyFrom(self._opened(request.open))
            self._is_open = True
        response.results.extend(map(self._result, request.operations))
        return response

    def close(self) -> None:
        """Release every sequence."""
        self._sequences.release_all()

    def _opened(self, opening: node_pb2.SessionOpen) -> node_pb2.SessionOpened:
        self._node.check_not_draining()
        self._node.check_client(opening.block_size, opening.model, opening.kv_dtype)
        if opening.worker_epoch:
            raise Unsupported(
                "this node does not follow worker epochs: leave `worker_epoch` unset, and restart "
                "the node when the worker's KV memory was lost",
                field="worker_epoch",
            )
        return node_pb2.SessionOpened(
            block_size=self._node.config.block_size,
            num_blocks=self._node.config.num_blocks,
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
                sequence = self._sequences.acquire(number, operation.acquire.prompt)
                result.acquire.num_cached_tokens = sequence.num_cached_tokens
                result.acquire.num_tokens = sequence.num_tokens
                result.acquire.block_table = block_ids_to_wire(sequence.block_table)
            case "append":
                appended, num_tokens = self._sequences.append(number, operation.append.tokens)
                result.append.new_block_ids = block_ids_to_wire(appended.new_block_ids)
                for src, dst in appended.copies:
                    result.append.copies.add(src=src, dst=dst)
                result.append.num_tokens = num_tokens
            case "commit":
                committed = self._sequences.commit(number, operation.commit.num_tokens)
                result.commit.num_committed_tokens = committed
            case "fork":
                self._sequences.fork(number, operation.fork.parent_sequence_id)
                result.fork.SetInParent()
            case "release":
                self._sequences.release(number)
                result.release.SetInParent()
            case _:
                raise InvalidArgument(f"the operation on sequence {number} says not what to do")
        return result
