"""NodeService: from messages to the node and back."""

# ruff: noqa: N802  (gRPC names the methods)

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from grpc import aio

from prefix_cache import __version__
from prefix_cache.node.explain import explain
from prefix_cache.node.leased_sequences import LeasedSequences
from prefix_cache.node.node import Node, random_id
from prefix_cache.node.quotas import Holdings
from prefix_cache.node.session import Session
from prefix_cache.node.watch import Watch
from prefix_cache.v1 import node_pb2, node_pb2_grpc
from prefix_cache.wire import (
    acquired_to_wire,
    appended_to_wire,
    block_ids_to_wire,
    committed_to_wire,
    duration_to_wire,
    error_to_status,
    event_to_wire,
    explanation_to_wire,
    reportable,
    unary,
    unary_from_peer,
)


class NodeServicer(node_pb2_grpc.NodeServiceServicer):
    """Answers the calls of NodeService."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._sequences = LeasedSequences(node)
        self._holdings = Holdings()

    @unary
    def Match(self, request: node_pb2.MatchRequest) -> node_pb2.MatchResponse:
        """Find the longest cached prefix."""
        match = self._node.match(request.prompt)
        return node_pb2.MatchResponse(
            num_cached_tokens=match.num_cached_tokens,
            block_ids=block_ids_to_wire(match.block_ids),
            num_host_tokens=match.num_host_tokens,
        )

    @unary_from_peer
    def Acquire(self, request: node_pb2.AcquireRequest, peer: str) -> node_pb2.AcquireResponse:
        """Open a sequence under a random handle."""
        lease_s = self._sequences.lease_s(request)
        handle = random_id()
        sequence = self._sequences.acquire(handle, request, self._holdings.of_peer(peer))
        self._sequences.grant(handle, lease_s)
        response = node_pb2.AcquireResponse(sequence_id=handle, lease=duration_to_wire(lease_s))
        acquired_to_wire(response, sequence)
        return response

    @unary
    def Append(self, request: node_pb2.AppendRequest) -> node_pb2.AppendResponse:
        """Add tokens."""
        appended, num_tokens = self._sequences.append(request.sequence_id, request.tokens)
        response = node_pb2.AppendResponse()
        appended_to_wire(response, appended, num_tokens)
        return response

    @unary
    def Commit(self, request: node_pb2.CommitRequest) -> node_pb2.CommitResponse:
        """Take note that KV is written."""
        sequence = self._sequences.commit(request.sequence_id, request.num_tokens)
        response = node_pb2.CommitResponse()
        committed_to_wire(response, sequence.num_committed_tokens, sequence.findable_prefix)
        return response

    @unary_from_peer
    def Fork(self, request: node_pb2.ForkRequest, peer: str) -> node_pb2.ForkResponse:
        """Open a fork under a random handle."""
        lease_s = self._sequences.lease_s(request)
        handle = random_id()
        self._sequences.fork(handle, request.sequence_id, self._holdings.of_peer(peer))
        self._sequences.grant(handle, lease_s)
        return node_pb2.ForkResponse(sequence_id=handle, lease=duration_to_wire(lease_s))

    @unary
    def Release(self, request: node_pb2.ReleaseRequest) -> node_pb2.ReleaseResponse:
        """End a sequence."""
        self._sequences.release(request.sequence_id)
        return node_pb2.ReleaseResponse()

    @unary
    def AcknowledgeCopies(
        self, request: node_pb2.AcknowledgeCopiesRequest
    ) -> node_pb2.AcknowledgeCopiesResponse:
        """Take note that copies were made, or never will be."""
        self._sequences.copies.acknowledge(request)
        return node_pb2.AcknowledgeCopiesResponse()

    @unary
    def Explain(self, request: node_pb2.ExplainRequest) -> node_pb2.ExplainResponse:
        """Say why each range of a prompt hits or misses."""
        return explanation_to_wire(explain(self._node, request))

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
            worker_epoch=self._node.epochs.current,
            max_message_bytes=config.max_message_bytes,
            draining=self._node.draining,
            host_blocks=config.host_blocks,
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
            recomputed_tokens=stats.recomputed_tokens,
            host_blocks=stats.host_blocks,
            host_free=stats.host_free,
            host_cached=stats.host_cached,
            loaded_tokens=stats.loaded_tokens,
            offloaded_blocks=stats.offloaded_blocks,
            rejected_offloads=stats.rejected_offloads,
            pending_copies=stats.pending_copies,
        )

    @unary
    def Reset(self, request: node_pb2.ResetRequest) -> node_pb2.ResetResponse:
        """Drop every cached block."""
        stats = self._node.cache.stats()
        self._node.cache.reset()
        return node_pb2.ResetResponse(dropped_blocks=stats.cached + stats.host_cached)

    async def Watch(  # type: ignore[override]  # the stubs know generators only
        self,
        request: node_pb2.WatchRequest,
        context: aio.ServicerContext[Any, Any],
    ) -> None:
        """Tell every change of the findable blocks until the watcher or the node ends."""
        log, with_tokens = self._node.log, request.include_tokens
        watch = Watch(log, request.incarnation, request.after, with_tokens=with_tokens)
        try:
            with self._node.measurements.watchers.track_inprogress():
                while not log.closed:
                    for event in watch.news():
                        await context.write(event_to_wire(event, with_tokens=with_tokens))
                    await watch.wait()
            self._node.check_not_draining()
        except Exception as error:
            await context.abort_with_status(error_to_status(reportable(error)))

    async def Session(  # type: ignore[override]  # the stubs know generators only
        self,
        request_iterator: AsyncIterator[node_pb2.SessionRequest],
        context: aio.ServicerContext[Any, Any],
    ) -> None:
        """Answer the steps of an engine until its stream ends, for whatever reason."""
        measurements = self._node.measurements
        until_lost = asyncio.timeout(None)
        session = Session(self._node, on_lost=lambda: until_lost.reschedule(0.0))
        try:
            async with until_lost, aclosing(session):
                with measurements.sessions.track_inprogress():
                    async for request in request_iterator:
                        with measurements.step(len(request.operations)):
                            response = await session.answer(request)
                        await context.write(response)
        except Exception as error:
            reason = session.lost or reportable(error)
            await context.abort_with_status(error_to_status(reason))
