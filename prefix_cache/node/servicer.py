"""NodeService: from messages to the node and back."""

# ruff: noqa: N802  (gRPC names the methods)

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

from grpc import aio

from prefix_cache import __version__
from prefix_cache.errors import Unsupported
from prefix_cache.node.node import Node, random_id
from prefix_cache.node.sequences import NumberedSequences
from prefix_cache.node.session import Session
from prefix_cache.v1 import node_pb2, node_pb2_grpc
from prefix_cache.wire import block_ids_to_wire, error_to_status, reportable, unary


class NodeServicer(node_pb2_grpc.NodeServiceServicer):
    """Answers the calls of NodeService."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sequences = NumberedSequences(node)

    @unary
    def Match(self, request: node_pb2.MatchRequest) -> node_pb2.MatchResponse:
        """Find the longest cached prefix."""
        match = self._node.match(request.prompt)
        return node_pb2.MatchResponse(
            num_cached_tokens=match.num_cached_tokens, block_ids=block_ids_to_wire(match.block_ids)
        )

    @unary
    def Acquire(self, request: node_pb2.AcquireRequest) -> node_pb2.AcquireResponse:
        """Open a sequence under a random handle."""
        _refuse_lease(request)
        handle = random_id()
        sequence = self._sequences.acquire(handle, request.prompt)
        return node_pb2.AcquireResponse(
            sequence_id=handle,
            num_cached_tokens=sequence.num_cached_tokens,
            num_tokens=sequence.num_tokens,
            block_table=block_ids_to_wire(sequence.block_table),
        )

    @unary
    def Append(self, request: node_pb2.AppendRequest) -> node_pb2.AppendResponse:
        """Add tokens."""
        appended, num_tokens = self._sequences.append(request.sequence_id, request.tokens)
        return node_pb2.AppendResponse(
            new_block_ids=block_ids_to_wire(appended.new_block_ids),
            copies=[node_pb2.BlockCopy(src=src, dst=dst) for src, dst in appended.copies],
            num_tokens=num_tokens,
        )

    @unary
    def Commit(self, request: node_pb2.CommitRequest) -> node_pb2.CommitResponse:
        """Take note that KV is written."""
        committed = self._sequences.commit(request.sequence_id, request.num_tokens)
        return node_pb2.CommitResponse(num_committed_tokens=committed)

    @unary
    def Fork(self, request: node_pb2.ForkRequest) -> node_pb2.ForkResponse:
        """Open a fork under a random handle."""
        _refuse_lease(request)
        handle = random_id()
        self._sequences.fork(handle, request.sequence_id)
        return node_pb2.ForkResponse(sequence_id=handle)

    @unary
    def Release(self, request: node_pb2.ReleaseRequest) -> node_pb2.ReleaseResponse:
        """End a sequence."""
        self._sequences.release(request.sequence_id)
        return node_pb2.ReleaseResponse()

    @unary
    def GetInfo(self, request: node_pb2.GetInfoRequest) -> node_pb2.GetInfoResponse:
        """Tell what this node is."""
        config = self._node.config
        return node_pb2.GetInfoResponse(
            name=config.name,
            version=__version__,
            block_size=config.block_size,
            num_blocks=config.num_blocks,
            model=config.model,
            kv_dtype=config.kv_dtype,
            incarnation=self._node.incarnation,
            max_message_bytes=config.max_message_bytes,
            draining=self._node.draining,
        )

    @unary
    def GetStats(self, request: node_pb2.GetStatsRequest) -> node_pb2.GetStatsResponse:
        """Tell blocks by state and the counters."""
        stats = self._node.cache.stats()
        return node_pb2.GetStatsResponse(
            num_blocks=stats.num_blocks,
            free=stats.free,
            cached=stats.cached,
            private=stats.private,
            evictable=stats.evictable,
            live_sequences=stats.live_sequences,
            query_tokens=stats.query_tokens,
            hit_tokens=stats.hit_tokens,
            evicted_blocks=stats.evicted_blocks,
        )

    @unary
    def Reset(self, request: node_pb2.ResetRequest) -> node_pb2.ResetResponse:
        """Drop every cached block."""
        dropped = self._node.cache.stats().cached
        self._node.cache.reset()
        return node_pb2.ResetResponse(dropped_blocks=dropped)

    async def Session(
        self,
        request_iterator: AsyncIterator[node_pb2.SessionRequest],
        context: aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[node_pb2.SessionResponse]:
        """Answer the steps of an engine until its stream ends, for whatever reason."""
        session = Session(self._node)
        try:
            with closing(session):
                async for request in request_iterator:
                    yield session.answer(request)
        except Exception as error:
            await context.abort_with_status(error_to_status(reportable(error)))


def _refuse_lease(request: node_pb2.AcquireRequest | node_pb2.ForkRequest) -> None:
    if request.HasField("lease"):
        raise Unsupported(
            "this node grants no leases: leave `lease` unset, and release the sequence",
            field="lease",
        )
