"""How our values and errors look on the wire; the only place that knows."""

from prefix_cache.wire.errors import (
    error_from_operation,
    error_from_rpc,
    error_to_operation,
    error_to_status,
    reportable,
)
from prefix_cache.wire.handlers import unary
from prefix_cache.wire.limits import DEFAULT_MAX_MESSAGE_BYTES, message_options
from prefix_cache.wire.values import (
    block_ids_from_wire,
    block_ids_to_wire,
    extra_keys_from_wire,
    extra_keys_to_wire,
    identity_from_wire,
    identity_to_wire,
)

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "block_ids_from_wire",
    "block_ids_to_wire",
    "error_from_operation",
    "error_from_rpc",
    "error_to_operation",
    "error_to_status",
    "extra_keys_from_wire",
    "extra_keys_to_wire",
    "identity_from_wire",
    "identity_to_wire",
    "message_options",
    "reportable",
    "unary",
]
