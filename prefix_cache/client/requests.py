"""What the clients send, checked before it leaves."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from math import inf

from google.protobuf.duration_pb2 import Duration

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.results import Prefix
from prefix_cache.index.tokens import Tokens, as_token_bytes
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import check_lease, duration_to_wire, extra_keys_to_wire, identity_to_wire


def prompt_to_wire(
    identity: Identity,
    tokens: Tokens,
    extra_keys: Iterable[ExtraKey],
    after: Prefix | None,
    block_size: int,
) -> node_pb2.Prompt:
    """Return a prompt, in delta form where it goes on ``after`` a prefix.

    ``block_size`` 0 leaves the block size unchecked.
    """
    return node_pb2.Prompt(
        identity=identity_to_wire(identity),
        tokens=as_token_bytes(tokens),
        extra_keys=extra_keys_to_wire(extra_keys),
        block_size=block_size,
        parent_block_hash=after.block_hash if after else b"",
        parent_num_tokens=uint32("after.num_tokens", after.num_tokens) if after else 0,
    )


def first_position(extra_keys: Iterable[ExtraKey]) -> float:
    """First token position that one of them touches; infinity for none."""
    return min((key.start for key in extra_keys_to_wire(extra_keys)), default=inf)


def lease_to_wire(lease_s: float | None) -> Duration | None:
    """Return a lease of so many seconds; None asks for the node's default."""
    if lease_s is None:
        return None
    check_lease(lease_s)
    return duration_to_wire(lease_s)


def text(name: str, value: str) -> str:
    """Return ``value``; raise ``InvalidArgument`` unless it is text that UTF-8 can encode."""
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidArgument(
            f"{name} is {value!r}, expected text that UTF-8 can encode",
            name=name,
            value=repr(value),
        ) from None
    return value


def uint32(name: str, value: int) -> int:
    """Return ``value``; raise ``InvalidArgument`` unless it fits 32 bits."""
    return _uint(name, value, 32)


def uint64(name: str, value: int) -> int:
    """Return ``value``; raise ``InvalidArgument`` unless it fits 64 bits."""
    return _uint(name, value, 64)


def _uint(name: str, value: int, bits: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << bits:
        raise InvalidArgument(
            f"{name} is {value!r}, expected an integer from 0 to 2^{bits}-1",
            name=name,
            value=repr(value),
        )
    return number


def session_opening(
    block_size: int, model: str, kv_dtype: str, worker_epoch: int
) -> node_pb2.SessionOpen:
    """Return what a session begins with."""
    return node_pb2.SessionOpen(
        block_size=uint32("block_size", block_size),
        model=text("model", model),
        kv_dtype=text("kv_dtype", kv_dtype),
        worker_epoch=uint64("worker_epoch", worker_epoch),
    )
