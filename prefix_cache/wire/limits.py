"""Limits of a message, the same for node, router and clients."""

from __future__ import annotations

# A prompt of a million tokens is 4 MB; gRPC's own limit of 4 MiB is too near to that.
DEFAULT_MAX_MESSAGE_BYTES = 64 * 1024 * 1024


def message_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Options of a channel or server that accepts messages up to ``max_message_bytes``."""
    return [
        ("grpc.max_receive_message_length", max_message_bytes),
        # What is too large is refused by the receiver, who knows its limit.
        ("grpc.max_send_message_length", -1),
    ]
