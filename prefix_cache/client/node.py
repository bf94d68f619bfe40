"""Clients of one cache node."""

from __future__ import annotations

from collections.abc import Iterable

from prefix_cache.client.connection import AsyncConnection, Connection
from prefix_cache.client.requests import prompt_to_wire, uint32, uint64
from prefix_cache.client.results import (
    AcquiredSequence,
    Appended,
    NodeInfo,
    read_acquired,
    read_appended,
    read_info,
    read_match,
    read_stats,
)
from prefix_cache.client.session import AsyncSession, Session
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.results import Match, Stats
from prefix_cache.index.tokens import Tokens, as_token_bytes
from prefix_cache.v1 import node_pb2, node_pb2_grpc


class NodeClient(Connection):
    """A node at ``host:port`` or ``unix:///path``.

    ``timeout_s`` holds for each call.  A ``block_size`` other than 0 is sent with each prompt; a
    node of another block size refuses it with ``IdentityMismatch``.  All calls may raise
    ``Unavailable`` and ``DeadlineExceeded``.
    """

    def __init__(self, address: str, *, timeout_s: float = 10.0, block_size: int = 0) -> None:
        super().__init__(address, timeout_s)
        self._block_size = uint32("block_size", block_size)
        self._stub = node_pb2_grpc.NodeServiceStub(self.channel)

    def match(
        self, identity: Identity, tokens: Tokens, extra_keys: Iterable[ExtraKey] = ()
    ) -> Match:
        """Find the longest cached prefix; changes nothing."""
        prompt = prompt_to_wire(identity, tokens, extra_keys, self._block_size)
        return read_match(self.call(self._stub.Match, node_pb2.MatchRequest(prompt=prompt)))

    def acquire(
        self, identity: Identity, tokens: Tokens, extra_keys: Iterable[ExtraKey] = ()
    ) -> AcquiredSequence:
        """Open a sequence.  Raises ``PoolExhausted``, ``PromptTooLarge`` or ``Draining``."""
        prompt = prompt_to_wire(identity, tokens, extra_keys, self._block_size)
        response = self.call(self._stub.Acquire, node_pb2.AcquireRequest(prompt=prompt))
        return read_acquired(response.sequence_id, response)

    def append(self, sequence_id: int, tokens: Tokens) -> Appended:
        """Add tokens.  Raises ``PoolExhausted`` or ``UnknownSequence``."""
        request = node_pb2.AppendRequest(
            sequence_id=uint64("sequence_id", sequence_id), tokens=as_token_bytes(tokens)
        )
        response = self.call(self._stub.Append, request)
        return read_appended(response)

    def commit(self, sequence_id: int, num_tokens: int) -> int:
        """Say that KV is written; return the committed tokens.  Raises ``CommitBeyondTokens``."""
        request = node_pb2.CommitRequest(
            sequence_id=uint64("sequence_id", sequence_id),
            num_tokens=uint32("num_tokens", num_tokens),
        )
        return self.call(self._stub.Commit, request).num_committed_tokens

    def fork(self, sequence_id: int) -> int:
        """Open a sequence that shares every block; return its handle."""
        request = node_pb2.ForkRequest(sequence_id=uint64("sequence_id", sequence_id))
        return self.call(self._stub.Fork, request).sequence_id

    def release(self, sequence_id: int) -> None:
        """End a sequence; its committed blocks stay cached."""
        request = node_pb2.ReleaseRequest(sequence_id=uint64("sequence_id", sequence_id))
        self.call(self._stub.Release, request)

    def info(self) -> NodeInfo:
        """Return what the node is."""
        return read_info(self.call(self._stub.GetInfo, node_pb2.GetInfoRequest()))

    def stats(self) -> Stats:
        """Return blocks by state and the counters."""
        return read_stats(self.call(self._stub.GetStats, node_pb2.GetStatsRequest()))

    def reset(self) -> int:
        """Drop every cached block; return how many.  Raises ``SequencesLive``."""
        return self.call(self._stub.Reset, node_pb2.ResetRequest()).dropped_blocks

    def session(self, *, block_size: int = 0, model: str = "", kv_dtype: str = "") -> Session:
        """Return a session to open with ``with``; what is given must be the node's."""
        return Session(self, _opening(block_size or self._block_size, model, kv_dtype))


class AsyncNodeClient(AsyncConnection):
    """A node at ``host:port`` or ``unix:///path``, for one event loop.

    ``timeout_s`` holds for each call.  A ``block_size`` other than 0 is sent with each prompt; a
    node of another block size refuses it with ``IdentityMismatch``.  All calls may raise
    ``Unavailable`` and ``DeadlineExceeded``.
    """

    def __init__(self, address: str, *, timeout_s: float = 10.0, block_size: int = 0) -> None:
        super().__init__(address, timeout_s)
        self._block_size = uint32("block_size", block_size)
        self._stub = node_pb2_grpc.NodeServiceStub(self.channel)

    async def match(
        self, identity: Identity, tokens: Tokens, extra_keys: Iterable[ExtraKey] = ()
    ) -> Match:
        """Find the longest cached prefix; changes nothing."""
        prompt = prompt_to_wire(identity, tokens, extra_keys, self._block_size)
        return read_match(await self.call(self._stub.Match, node_pb2.MatchRequest(prompt=prompt)))

    async def acquire(
        self, identity: Identity, tokens: Tokens, extra_keys: Iterable[ExtraKey] = ()
    ) -> AcquiredSequence:
        """Open a sequence.  Raises ``PoolExhausted``, ``PromptTooLarge`` or ``Draining``."""
        prompt = prompt_to_wire(identity, tokens, extra_keys, self._block_size)
        response = await self.call(self._stub.Acquire, node_pb2.AcquireRequest(prompt=prompt))
        return read_acquired(response.sequence_id, response)

    async def append(self, sequence_id: int, tokens: Tokens) -> Appended:
        """Add tokens.  Raises ``PoolExhausted`` or ``UnknownSequence``."""
        request = node_pb2.AppendRequest(
            sequence_id=uint64("sequence_id", sequence_id), tokens=as_token_bytes(tokens)
        )
        response = await self.call(self._stub.Append, request)
        return read_appended(response)

    async def commit(self, sequence_id: int, num_tokens: int) -> int:
        """Say that KV is written; return the committed tokens.  Raises ``CommitBeyondTokens``."""
        request = node_pb2.CommitRequest(
            sequence_id=uint64("sequence_id", sequence_id),
            num_tokens=uint32("num_tokens", num_tokens),
        )
        return (await self.call(self._stub.Commit, request)).num_committed_tokens

    async def fork(self, sequence_id: int) -> int:
        """Open a sequence that shares every block; return its handle."""
        request = node_pb2.ForkRequest(sequence_id=uint64("sequence_id", sequence_id))
        return (await self.call(self._stub.Fork, request)).sequence_id

    async def release(self, sequence_id: int) -> None:
        """End a sequence; its committed blocks stay cached."""
        request = node_pb2.ReleaseRequest(sequence_id=uint64("sequence_id", sequence_id))
        await self.call(self._stub.Release, request)

    async def info(self) -> NodeInfo:
        """Return what the node is."""
        return read_info(await self.call(self._stub.GetInfo, node_pb2.GetInfoRequest()))

    async def stats(self) -> Stats:
        """Return blocks by state and the counters."""
        return read_stats(await self.call(self._stub.GetStats, node_pb2.GetStatsRequest()))

    async def reset(self) -> int:
        """Drop every cached block; return how many.  Raises ``SequencesLive``."""
        return (await self.call(self._stub.Reset, node_pb2.ResetRequest())).dropped_blocks

    def session(self, *, block_size: int = 0, model: str = "", kv_dtype: str = "") -> AsyncSession:
        """Return a session to open with ``async with``; what is given must be the node's."""
        return AsyncSession(self, _opening(block_size or self._block_size, model, kv_dtype))


def _opening(block_size: int, model: str, kv_dtype: str) -> node_pb2.SessionOpen:
    return node_pb2.SessionOpen(
        block_size=uint32("block_size", block_size), model=model, kv_dtype=kv_dtype
    )
