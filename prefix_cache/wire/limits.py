"""Limits of messages and leases, the same for node, router and clients."""

from __future__ import annotations

from prefix_cache.errors import InvalidArgument

# A prompt of a million tokens is 4 MB; gRPC's own limit of 4 MiB is too near to that.
DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# Of a lease; a node cuts what is longer than its own longest.
SHORTEST_LEASE_S = 0.001
LONGEST_LEASE_S = 365 * 24 * 3600


def check_lease(lease_s: float) -> None:
    """Raise ``InvalidArgument`` unless ``lease_s`` is a number of seconds that a lease may have."""
    is_number = isinstance(lease_s, int | float) and not isinstance(lease_s, bool)
    if not is_number or not SHORTEST_LEASE_S <= lease_s <= LONGEST_LEASE_S:
        raise InvalidArgument(
            f"lease_s is {lease_s!r}, expected seconds from {SHORTEST_LEASE_S} "
            f"to {LONGEST_LEASE_S}",
            name="lease_s",
            value=repr(lease_s),
        )


def message_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Options of a channel or server that accepts messages up to ``max_message_bytes``."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        # What is too large is refused by the receiver, who knows its limit.
        ("grpc.max_send_message_length", -1),
    ]
