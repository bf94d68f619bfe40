"""What a router says of itself, of all its workers: nodes, conversations, decisions, metrics."""

from router.status.status import Status

__all__ = ["Status"]
