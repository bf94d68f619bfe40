"""The events of a node, numbered, to and from the wire."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.errors import Unsupported
from prefix_cache.index.events import BlocksRemoved, BlocksStored, Cleared
from prefix_cache.v1 import node_pb2
from prefix_cache.wire.values import identity_from_wire, identity_to_wire


@dataclass(frozen=True, slots=True)
class SnapshotStarted:
    """Forget the node's blocks; what is stored up to ``SnapshotEnded`` is all it holds."""


@dataclass(frozen=True, slots=True)
class SnapshotEnded:
    """The snapshot is whole."""


Happening = BlocksStored | BlocksRemoved | Cleared | SnapshotStarted | SnapshotEnded


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """What happened at a node, and its ``number`` in the life ``incarnation`` of its claims.

    Each number is one more than the one before; within a snapshot it is that of the last event
    the snapshot includes.  A new incarnation says that all earlier claims are void.
    """

    incarnation: int
    number: int
    event: Happening


def event_to_wire(node_event: NodeEvent, *, with_tokens: bool) -> node_pb2.WatchResponse:
    """Return the message, with token ids and extra keys or without."""
    message = node_pb2.WatchResponse(incarnation=node_event.incarnation, number=node_event.number)
    match node_event.event:
        case BlocksStored() as event:
            stored = message.stored
            stored.block_hashes.extend(event.block_hashes)
            stored.parent_block_hash = event.parent_block_hash or b""
            stored.identity.CopyFrom(identity_to_wire(event.identity))
            stored.block_size = event.block_size
            if with_tokens:
                stored.tokens = event.token_ids
                stored.extra_keys.extend(event.extra_keys if any(event.extra_keys) else ())
        case BlocksRemoved(block_hashes):
            message.removed.block_hashes.extend(block_hashes)
        case Cleared():
            message.cleared.SetInParent()
        case SnapshotStarted():
            message.snapshot_started.SetInParent()
        case SnapshotEnded():
            message.snapshot_ended.SetInParent()
    return message


def event_from_wire(message: node_pb2.WatchResponse) -> NodeEvent:
    """Return the event; ``token_ids`` and ``extra_keys`` are empty where they were not sent.

    Raises ``Unsupported`` for an event of a kind that this version does not know.
    """
    return NodeEvent(message.incarnation, message.number, _happening(message))


def _happening(message: node_pb2.WatchResponse) -> Happening:
    match message.WhichOneof("event"):
        case "stored":
            stored = message.stored
            return BlocksStored(
                block_hashes=tuple(stored.block_hashes),
                parent_block_hash=stored.parent_block_hash or None,
                token_ids=stored.tokens,
                block_size=stored.block_size,
                extra_keys=tuple(stored.extra_keys),
                identity=identity_from_wire(stored.identity),
            )
        case "removed":
            return BlocksRemoved(tuple(message.removed.block_hashes))
        case "cleared":
            return Cleared()
        case "snapshot_started":
            return SnapshotStarted()
        case "snapshot_ended":
            return SnapshotEnded()
        case _:
            raise Unsupported(
                f"event {message.number} is of a kind that this version does not know",
                number=message.number,
            )
