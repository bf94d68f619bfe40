"""How our values and errors look on the wire; the only place that knows."""

from prefix_cache.wire.decoding import RefuseUndecodable
from prefix_cache.wire.errors import (
    error_from_operation,
    error_from_rpc,
    error_to_operation,
    error_to_status,
    reportable,
)
from prefix_cache.wire.events import (
    NodeEvent,
    SnapshotEnded,
    SnapshotStarted,
    event_from_wire,
    event_to_wire,
)
from prefix_cache.wire.explanations import explanation_from_wire, explanation_to_wire
from prefix_cache.wire.handlers import unary, unary_async, unary_from_peer
from prefix_cache.wire.limits import (
    DEFAULT_MAX_MESSAGE_BYTES,
    SHORTEST_LEASE_S,
    check_lease,
    message_options,
)
from prefix_cache.wire.values import (
    acquired_to_wire,
    appended_to_wire,
    block_ids_from_wire,
    block_ids_to_wire,
    committed_to_wire,
    copies_from_wire,
    duration_from_wire,
    duration_to_wire,
    extra_keys_from_wire,
    extra_keys_to_wire,
    identity_from_wire,
    identity_to_wire,
    offloads_from_wire,
    prefix_from_committed,
    prefix_from_prompt,
)

__all__ = [
    "DEFAULT_MAX_MESSAGE_BYTES",
    "SHORTEST_LEASE_S",
    "NodeEvent",
    "RefuseUndecodable",
    "SnapshotEnded",
    "SnapshotStarted",
    "acquired_to_wire",
    "appended_to_wire",
    "block_ids_from_wire",
    "block_ids_to_wire",
    "check_lease",
    "committed_to_wire",
    "copies_from_wire",
    "duration_from_wire",
    "duration_to_wire",
    "error_from_operation",
    "error_from_rpc",
    "error_to_operation",
    "error_to_status",
    "event_from_wire",
    "event_to_wire",
    "explanation_from_wire",
    "explanation_to_wire",
    "extra_keys_from_wire",
    "extra_keys_to_wire",
    "identity_from_wire",
    "identity_to_wire",
    "message_options",
    "offloads_from_wire",
    "prefix_from_committed",
    "prefix_from_prompt",
    "reportable",
    "unary",
    "unary_async",
    "unary_from_peer",
]
