"""What a node is started with."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.errors import InvalidArgument
from prefix_cache.wire import DEFAULT_MAX_MESSAGE_BYTES

# gRPC takes the limit as a signed 32-bit number.
_LARGEST_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of one node.

    ``model`` and ``kv_dtype`` are the only ones served, empty for any.  ``listen`` holds
    ``host:port`` (port 0: a free one) and ``unix:///path`` addresses.  A node told to end gives
    live sequences ``drain_grace_s`` seconds to do so.
    """

    name: str = "node"
    num_blocks: int = 4096
    block_size: int = 16
    model: str = ""
    kv_dtype: str = ""
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    listen: tuple[str, ...] = ("127.0.0.1:50051",)
    drain_grace_s: float = 30.0

    def __post_init__(self) -> None:
        if not 1 <= self.max_message_bytes <= _LARGEST_LIMIT:
            raise InvalidArgument(
                f"max_message_bytes is {self.max_message_bytes}, expected 1 to {_LARGEST_LIMIT}",
                name="max_message_bytes",
                value=self.max_message_bytes,
            )
