"""The asynchronous client of one cache node."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable

from prefix_cache.client.connection import AsyncConnection
from prefix_cache.client.requests import (
    lease_to_wire,
    prompt_to_wire,
    session_opening,
    uint32,
    uint64,
)
from prefix_cache.client.results import (
    AcquiredSequence,
    Appended,
    Committed,
    NodeInfo,
    read_acquired,
    read_appended,
    read_committed,
    read_info,
    read_match,
    read_stats,
)
from prefix_cache.client.session import AsyncSession
from prefix_cache.client.stream_position import StreamPosition
from prefix_cache.client.watch import follow, watch_async
from prefix_cache.index.diagnosis import Explanation
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.results import Match, Prefix, Stats
from prefix_cache.index.tokens import Tokens, as_token_bytes
from prefix_cache.v1 import node_pb2, node_pb2_grpc
from prefix_cache.wire import NodeEvent, explanation_from_wire


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
        self,
        identity: Identity,
        tokens: Tokens,
        extra_keys: Iterable[ExtraKey] = (),
        *,
        after: Prefix | None = None,
    ) -> Match:
        """Find the longest cached prefix; changes nothing.  ``after`` is as in ``acquire``."""
        prompt = prompt_to_wire(identity, tokens, extra_keys, after, self._block_size)
        return read_match(await self.call(self._stub.Match, node_pb2.MatchRequest(prompt=prompt)))

    async def acquire(
        self,
        identity: Identity,
        tokens: Tokens,
        extra_keys: Iterable[ExtraKey] = (),
        *,
        after: Prefix | None = None,
        resumed: bool = False,
        load: bool = True,
        lease_s: float | None = None,
    ) -> AcquiredSequence:
        """Open a sequence; it ends when nothing touches it for ``lease_s`` seconds.

        In delta form ``tokens`` are those ``after`` the prefix that the last ``commit`` of a
        sequence returned before it was released; raises ``UnknownPrefix`` when that is not known
        (any more) and the prompt is to be sent in full.  ``resumed`` says that the prompt
        was acquired before and preempted, for the counts.  Unless it is to ``load``, what is
        cached on the host only is computed again.  Raises ``PoolExhausted``, ``PromptTooLarge``,
        ``ClientLimit`` or ``Draining``.
        """
        request = node_pb2.AcquireRequest(
            prompt=prompt_to_wire(identity, tokens, extra_keys, after, self._block_size),
            resumed=resumed,
            without_host=not load,
            lease=lease_to_wire(lease_s),
        )
        response = await self.call(self._stub.Acquire, request)
        return read_acquired(response.sequence_id, response)

    async def explain(
        self,
        identity: Identity,
        tokens: Tokens,
        extra_keys: Iterable[ExtraKey] = (),
        *,
        across_salts: bool = False,
    ) -> Explanation:
        """Say for every token of a prompt why it would hit or miss now; changes nothing.

        Raises ``PermissionDenied`` for ``across_salts`` unless the node allows it.
        """
        request = node_pb2.ExplainRequest(
            prompt=prompt_to_wire(identity, tokens, extra_keys, None, self._block_size),
            across_salts=across_salts,
        )
        return explanation_from_wire(await self.call(self._stub.Explain, request))

    async def append(self, sequence_id: int, tokens: Tokens) -> Appended:
        """Add tokens.  Raises ``PoolExhausted`` or ``UnknownSequence``."""
        request = node_pb2.AppendRequest(
            sequence_id=uint64("sequence_id", sequence_id), tokens=as_token_bytes(tokens)
        )
        response = await self.call(self._stub.Append, request)
        return read_appended(response)

    async def commit(self, sequence_id: int, num_tokens: int) -> Committed:
        """Say that KV is written.  Raises ``CommitBeyondTokens``."""
        request = node_pb2.CommitRequest(
            sequence_id=uint64("sequence_id", sequence_id),
            num_tokens=uint32("num_tokens", num_tokens),
        )
        response = await self.call(self._stub.Commit, request)
        return read_committed(response)

    async def fork(self, sequence_id: int, *, lease_s: float | None = None) -> int:
        """Open a sequence that shares every block; return its handle.  The lease is its own."""
        request = node_pb2.ForkRequest(
            sequence_id=uint64("sequence_id", sequence_id), lease=lease_to_wire(lease_s)
        )
        return (await self.call(self._stub.Fork, request)).sequence_id

    async def release(self, sequence_id: int) -> None:
        """End a sequence; its committed blocks stay cached."""
        request = node_pb2.ReleaseRequest(sequence_id=uint64("sequence_id", sequence_id))
        await self.call(self._stub.Release, request)

    async def acknowledge(self, copy_id: int, *, lost: bool = False) -> None:
        """Say that copies between GPU and host were made; ``lost``: they never will be.

        Raises ``UnknownCopy`` for those that are not pending.
        """
        request = node_pb2.AcknowledgeCopiesRequest(copy_id=uint64("copy_id", copy_id), lost=lost)
        await self.call(self._stub.AcknowledgeCopies, request)

    async def info(self) -> NodeInfo:
        """Return what the node is."""
        return read_info(await self.call(self._stub.GetInfo, node_pb2.GetInfoRequest()))

    async def stats(self) -> Stats:
        """Return blocks by state and the counters."""
        return read_stats(await self.call(self._stub.GetStats, node_pb2.GetStatsRequest()))

    async def reset(self) -> int:
        """Drop every cached block; return how many.  Raises ``SequencesLive``."""
        return (await self.call(self._stub.Reset, node_pb2.ResetRequest())).dropped_blocks

    def watch(
        self, incarnation: int = 0, after: int = 0, *, include_tokens: bool = False
    ) -> AsyncGenerator[NodeEvent]:
        """Yield the events of the node that follow event ``after`` of ``incarnation``.

        Where those are not there any more, as with 0 and 0, a snapshot comes first.  Without an
        end, but for ``Unavailable``.  Token ids and extra keys come only if asked for.
        """
        return watch_async(self, StreamPosition(incarnation, after), include_tokens)

    def follow(
        self, incarnation: int = 0, after: int = 0, *, include_tokens: bool = False
    ) -> AsyncGenerator[NodeEvent]:
        """Yield events as ``watch`` does, and go on by itself when the stream breaks.

        A node that is away is tried again and again; one that comes back in another incarnation
        tells a snapshot.
        """
        return follow(self, StreamPosition(incarnation, after), include_tokens)

    def session(
        self, *, block_size: int = 0, model: str = "", kv_dtype: str = "", worker_epoch: int = 0
    ) -> AsyncSession:
        """Return a session to open with ``async with``.

        ``block_size``, ``model`` and ``kv_dtype``, where given, must be the node's.
        ``worker_epoch`` is a random number that the worker draws whenever its KV memory is new;
        another one than before drops all the node holds, and breaks the sessions that were open.
        So does the first one where anything is held already.
        """
        opening = session_opening(block_size or self._block_size, model, kv_dtype, worker_epoch)
        return AsyncSession(self, opening)
