"""What a node answers, as values, and how they are read from its messages."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.index.results import BlockIds, Copies, Match, Prefix, Stats
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import (
    block_ids_from_wire,
    copies_from_wire,
    duration_from_wire,
    offloads_from_wire,
    prefix_from_committed,
)


@dataclass(frozen=True, slots=True, eq=False)
class AcquiredSequence:
    """An opened sequence.

    The KV of the first ``num_cached_tokens`` of its ``num_tokens`` tokens is in the worker's
    memory, that of the last ``num_loaded_tokens`` of these once the loads of ``copies`` are made.
    ``block_table`` are its physical blocks, int32 and read-only.  It ends when nothing
    touches it for ``lease_s`` seconds; None: with its session.
    """

    id: int
    num_cached_tokens: int
    num_tokens: int
    block_table: BlockIds
    lease_s: float | None
    num_loaded_tokens: int
    copies: Copies


@dataclass(frozen=True, slots=True)
class Appended:
    """``new_block_ids`` were added at the end of the block table.

    Each ``(src, dst)`` of ``copies`` is a block the worker copies before it writes: ``dst`` has
    replaced the shared ``src`` at the end of the table as it was.  ``num_tokens`` are the tokens
    of the sequence now.  Each ``(block, slot)`` of ``offloads`` is a block that the worker copies
    to the host before that; ``copy_id`` names these, 0 where there are none.
    """

    new_block_ids: tuple[int, ...]
    copies: tuple[tuple[int, int], ...]
    num_tokens: int
    offloads: tuple[tuple[int, int], ...] = ()
    copy_id: int = 0


@dataclass(frozen=True, slots=True)
class Committed:
    """``num_committed_tokens`` of the sequence are committed now.

    ``prefix`` is the part of it that can be found, None where there is none.  The last one before
    the release is what a later prompt in delta form goes on ``after``.
    """

    num_committed_tokens: int
    prefix: Prefix | None


@dataclass(frozen=True, slots=True)
class NodeInfo:
    """What a node is.

    ``model`` and ``kv_dtype`` are the only ones it serves, empty for any.  ``incarnation`` is
    which life of its claims this is; ``worker_epoch`` which life of the worker, 0 if none said.
    """

    name: str
    version: str
    block_size: int
    num_blocks: int
    host_blocks: int
    model: str
    kv_dtype: str
    incarnation: int
    worker_epoch: int
    max_message_bytes: int
    draining: bool


def read_match(message: node_pb2.MatchResponse) -> Match:
    """Read the answer to Match."""
    return Match(
        num_cached_tokens=message.num_cached_tokens,
        block_ids=block_ids_from_wire(message.block_ids),
        num_host_tokens=message.num_host_tokens,
    )


def read_acquired(
    sequence_id: int, message: node_pb2.AcquireResponse | node_pb2.AcquireResult
) -> AcquiredSequence:
    """Read how a sequence was opened."""
    return AcquiredSequence(
        id=sequence_id,
        num_cached_tokens=message.num_cached_tokens,
        num_tokens=message.num_tokens,
        block_table=block_ids_from_wire(message.block_table),
        lease_s=_lease_s(message),
        num_loaded_tokens=message.num_loaded_tokens,
        copies=copies_from_wire(message),
    )


def _lease_s(message: node_pb2.AcquireResponse | node_pb2.AcquireResult) -> float | None:
    if isinstance(message, node_pb2.AcquireResponse) and message.HasField("lease"):
        return duration_from_wire(message.lease)
    return None


def read_appended(message: node_pb2.AppendResponse | node_pb2.AppendResult) -> Appended:
    """Read what appending brought."""
    return Appended(
        new_block_ids=tuple(block_ids_from_wire(message.new_block_ids).tolist()),
        copies=tuple((copy.src, copy.dst) for copy in message.copies),
        num_tokens=message.num_tokens,
        offloads=offloads_from_wire(message),
        copy_id=message.copy_id,
    )


def read_committed(message: node_pb2.CommitResponse | node_pb2.CommitResult) -> Committed:
    """Read how far a sequence is committed."""
    return Committed(message.num_committed_tokens, prefix_from_committed(message))


def read_info(message: node_pb2.GetInfoResponse) -> NodeInfo:
    """Read the answer to GetInfo."""
    return NodeInfo(
        name=message.name,
        version=message.version,
        block_size=message.block_size,
        num_blocks=message.num_blocks,
        host_blocks=message.host_blocks,
        model=message.model,
        kv_dtype=message.kv_dtype,
        incarnation=message.incarnation,
        worker_epoch=message.worker_epoch,
        max_message_bytes=message.max_message_bytes,
        draining=message.draining,
    )


def read_stats(message: node_pb2.GetStatsResponse) -> Stats:
    """Read the answer to GetStats."""
    return Stats(
        num_blocks=message.num_blocks,
        free=message.free,
        cached=message.cached,
        private=message.private,
        evictable=message.evictable,
        live_sequences=message.live_sequences,
        query_tokens=message.query_tokens,
        hit_tokens=message.hit_tokens,
        evicted_blocks=message.evicted_blocks,
        recomputed_tokens=message.recomputed_tokens,
        host_blocks=message.host_blocks,
        host_free=message.host_free,
        host_cached=message.host_cached,
        loaded_tokens=message.loaded_tokens,
        offloaded_blocks=message.offloaded_blocks,
        rejected_offloads=message.rejected_offloads,
        pending_copies=message.pending_copies,
    )
