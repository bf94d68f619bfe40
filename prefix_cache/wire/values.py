"""Identities, extra keys, block tables and what calls bring, to and from the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from google.protobuf.duration_pb2 import Duration

from prefix_cache.errors import InvalidExtraKeys, InvalidIdentity
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.results import Appended, BlockIds, Copies, Prefix
from prefix_cache.index.sequence import Sequence as LiveSequence
from prefix_cache.v1 import node_pb2

# What an empty `kv_dtype` on the wire means.
_DEFAULT_KV_DTYPE = "bfloat16"


def identity_to_wire(identity: Identity) -> node_pb2.Identity:
    """Raise ``InvalidIdentity`` for text that UTF-8 cannot encode."""
    try:
        return node_pb2.Identity(
            model=identity.model,
            revision=identity.revision,
            adapter=identity.adapter,
            adapter_revision=identity.adapter_revision,
            kv_dtype=identity.kv_dtype,
            salt=identity.salt,
        )
    except UnicodeEncodeError:
        raise InvalidIdentity(
            f"identity {identity!r} has a field that UTF-8 cannot encode", identity=repr(identity)
        ) from None


def identity_from_wire(message: node_pb2.Identity) -> Identity:
    """Return the identity; an empty ``kv_dtype`` means ``bfloat16``."""
    return Identity(
        model=message.model,
        revision=message.revision,
        adapter=message.adapter,
        adapter_revision=message.adapter_revision,
        kv_dtype=message.kv_dtype or _DEFAULT_KV_DTYPE,
        salt=message.salt,
    )


def extra_keys_to_wire(extra_keys: Iterable[ExtraKey]) -> list[node_pb2.ExtraKey]:
    """Raise ``InvalidExtraKeys`` for what the message cannot hold; the node checks the rest."""
    return [_extra_key_to_wire(entry) for entry in extra_keys]


def _extra_key_to_wire(entry: ExtraKey) -> node_pb2.ExtraKey:
    try:
        start, end, key = entry
        return node_pb2.ExtraKey(start=start, end=end, key=key)
    except (TypeError, ValueError):
        raise InvalidExtraKeys(
            f"extra key {entry!r}: expected (start, end or None, key as bytes or None) "
            "with positions of 32 bits",
            value=repr(entry),
        ) from None


def extra_keys_from_wire(messages: Iterable[node_pb2.ExtraKey]) -> list[ExtraKey]:
    """Return ``(start, end or None, key or None)`` as ``BlockCache`` takes them."""
    return [
        (
            message.start,
            message.end if message.HasField("end") else None,
            message.key if message.HasField("key") else None,
        )
        for message in messages
    ]


def prefix_from_prompt(prompt: node_pb2.Prompt) -> Prefix | None:
    """Return the prefix that a prompt in delta form goes on from; None for one in full."""
    if not prompt.parent_block_hash and not prompt.parent_num_tokens:
        return None
    return Prefix(prompt.parent_block_hash, prompt.parent_num_tokens)


def acquired_to_wire(
    message: node_pb2.AcquireResponse | node_pb2.AcquireResult, sequence: LiveSequence
) -> None:
    """Say in ``message`` what a sequence that was just opened has."""
    message.num_cached_tokens = sequence.num_cached_tokens
    message.num_tokens = sequence.num_tokens
    message.block_table = block_ids_to_wire(sequence.block_table)
    message.num_loaded_tokens = sequence.num_loaded_tokens
    copies = sequence.copies
    message.copy_id = copies.copy_id
    message.offloads.extend(_host_copies(copies.offloads))
    message.loads.extend(_host_copies((block, slot) for slot, block in copies.loads))


def appended_to_wire(
    message: node_pb2.AppendResponse | node_pb2.AppendResult, appended: Appended, num_tokens: int
) -> None:
    """Say in ``message`` what an append brought, and how many tokens the sequence has now."""
    message.new_block_ids = block_ids_to_wire(appended.new_block_ids)
    for src, dst in appended.copies:
        message.copies.add(src=src, dst=dst)
    message.num_tokens = num_tokens
    message.copy_id = appended.copy_id
    message.offloads.extend(_host_copies(appended.offloads))


def _host_copies(pairs: Iterable[tuple[int, int]]) -> list[node_pb2.HostCopy]:
    return [node_pb2.HostCopy(block=block, slot=slot) for block, slot in pairs]


def copies_from_wire(message: node_pb2.AcquireResponse | node_pb2.AcquireResult) -> Copies:
    """Return the copies between GPU and host that opening a sequence asks for."""
    loads = tuple((copy.slot, copy.block) for copy in message.loads)
    return Copies(message.copy_id, offloads_from_wire(message), loads)


def offloads_from_wire(
    message: node_pb2.AcquireResponse
    | node_pb2.AcquireResult
    | node_pb2.AppendResponse
    | node_pb2.AppendResult,
) -> tuple[tuple[int, int], ...]:
    """Return ``(block, slot)`` of each block that is to be copied to the host."""
    return tuple((copy.block, copy.slot) for copy in message.offloads)


def committed_to_wire(
    message: node_pb2.CommitResponse | node_pb2.CommitResult,
    num_committed_tokens: int,
    prefix: Prefix | None,
) -> None:
    """Say in ``message`` how far a sequence is committed, and what a delta can follow."""
    message.num_committed_tokens = num_committed_tokens
    if prefix is not None:
        message.num_findable_tokens = prefix.num_tokens
        message.block_hash = prefix.block_hash


def prefix_from_committed(
    message: node_pb2.CommitResponse | node_pb2.CommitResult,
) -> Prefix | None:
    """Return the prefix that a delta can follow; None where nothing is findable."""
    if not message.num_findable_tokens:
        return None
    return Prefix(message.block_hash, message.num_findable_tokens)


def duration_to_wire(seconds: float) -> Duration:
    """Return a duration, to the nanosecond."""
    whole, fraction = divmod(round(seconds * 1e9), 10**9)
    return Duration(seconds=whole, nanos=fraction)


def duration_from_wire(duration: Duration) -> float:
    """Return seconds."""
    return duration.seconds + duration.nanos / 1e9


def block_ids_to_wire(block_ids: BlockIds | Sequence[int]) -> bytes:
    """Return int32 little-endian bytes, four a block."""
    return np.asarray(block_ids, dtype="<i4").tobytes()


def block_ids_from_wire(data: bytes) -> BlockIds:
    """Return a read-only int32 array, one element a block."""
    return np.frombuffer(data, dtype="<i4")
