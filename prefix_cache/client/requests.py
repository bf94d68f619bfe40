"""What the clients send, checked before it leaves."""

from __future__ import annotations

import operator
from collections.abc import Iterable

from prefix_cache.errors import InvalidArgument
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.tokens import Tokens, as_token_bytes
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import extra_keys_to_wire, identity_to_wire


def prompt_to_wire(
    identity: Identity, tokens: Tokens, extra_keys: Iterable[ExtraKey], block_size: int
) -> node_pb2.Prompt:
    """Return a prompt in full; ``block_size`` 0 leaves the block size unchecked."""
    return node_pb2.Prompt(
        identity=identity_to_wire(identity),
        tokens=as_token_bytes(tokens),
        extra_keys=extra_keys_to_wire(extra_keys),
        block_size=block_size,
    )


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
