"""What a node is started with."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.addresses import engine_url, grpc_address
from prefix_cache.errors import InvalidArgument
from prefix_cache.index.arguments import MAX_BLOCK_SIZE, MAX_NUM_BLOCKS
from prefix_cache.redis_client import check_redis_url
from prefix_cache.wire import DEFAULT_MAX_MESSAGE_BYTES, SHORTEST_LEASE_S

# gRPC takes the limit as a signed 32-bit number.
_LARGEST_LIMIT = 2**31 - 1
_LONGEST_S = 30 * 24 * 3600.0

# Every address of the host, which is no address to connect to.
_WITHOUT_HOST = ("0.0.0.0:", "[::]:")


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Settings of one node.

    ``model`` and ``kv_dtype`` are the only ones served, empty for any.  ``listen`` holds
    ``host:port`` (port 0: a free one) and ``unix:///path`` addresses.  A node told to end gives
    live sequences ``drain_grace_s`` seconds to do so.

    A sequence that a unary call opened lives while it is touched within its lease: ``lease_s``
    seconds, or what its client asks for up to ``max_lease_s``.  ``max_sequences_per_client`` and
    ``max_blocks_per_client`` limit a session, and the unary callers of one host together; 0 is
    no limit.  Forks take no block of the pool: only these limits bound the memory they need here.
    A step of a session carries out at most ``max_operations_per_step`` operations.

    Blocks that are evicted move to ``host_blocks`` slots on the host, of one block each; 0 is no
    such tier.  Copies between the two that the worker does not acknowledge within
    ``copy_timeout_s`` seconds count as lost, and must not be made any more.

    ``event_log_bytes`` is about the memory for events that a watcher can go on from.  ``metrics``
    is the ``host:port`` that serves them to Prometheus, empty for none.

    ``allow_explain_across_salts`` lets every client learn what is cached under other salts.

    ``announce`` is the URL of the Redis where routers look for nodes, empty for none.  There the
    node says its ``name``, the ``pool`` it belongs to, the ``engine_url`` of the engine beside it
    where that serves HTTP, and the address that routers reach it by: ``advertise``, or the first
    one listened on.
    """

    name: str = "node"
    num_blocks: int = 4096
    block_size: int = 16
    model: str = ""
    kv_dtype: str = ""
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    listen: tuple[str, ...] = ("127.0.0.1:50051",)
    drain_grace_s: float = 30.0
    lease_s: float = 60.0
    max_lease_s: float = 600.0
    max_sequences_per_client: int = 65_536
    max_blocks_per_client: int = 16_777_216
    max_operations_per_step: int = 16_384
    host_blocks: int = 0
    copy_timeout_s: float = 60.0
    event_log_bytes: int = 64 * 1024 * 1024
    metrics: str = ""
    allow_explain_across_salts: bool = False
    announce: str = ""
    pool: str = "default"
    engine_url: str = ""
    advertise: str = ""

    def __post_init__(self) -> None:
        if not self.listen:
            raise InvalidArgument("listen is empty, expected an address or more", name="listen")
        for name, lowest, highest in (
            ("num_blocks", 1, MAX_NUM_BLOCKS),
            ("block_size", 1, MAX_BLOCK_SIZE),
            ("max_message_bytes", 1, _LARGEST_LIMIT),
            ("drain_grace_s", 0, _LONGEST_S),
            ("max_lease_s", SHORTEST_LEASE_S, _LONGEST_S),
            ("lease_s", SHORTEST_LEASE_S, self.max_lease_s),
            ("max_sequences_per_client", 0, _LARGEST_LIMIT),
            ("max_blocks_per_client", 0, _LARGEST_LIMIT),
            ("max_operations_per_step", 1, _LARGEST_LIMIT),
            ("host_blocks", 0, MAX_NUM_BLOCKS),
            ("copy_timeout_s", SHORTEST_LEASE_S, _LONGEST_S),
            ("event_log_bytes", 0, _LARGEST_LIMIT),
        ):
            value = getattr(self, name)
            if not lowest <= value <= highest:
                raise InvalidArgument(
                    f"{name} is {value}, expected {lowest} to {highest}", name=name, value=value
                )
        self._check_announcement()

    def _check_announcement(self) -> None:
        if not self.announce:
            return
        check_redis_url("announce", self.announce)
        try:
            name = "engine_url"
            if self.engine_url:
                engine_url(self.engine_url)
            name = "advertise"
            if self.advertise:
                grpc_address(self.advertise)
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}: {error}", name=name) from None
        if not self.advertise and self.listen[0].startswith(_WITHOUT_HOST):
            raise InvalidArgument(
                f"advertise is '', expected an address that routers reach: {self.listen[0]!r} is "
                "none",
                name="advertise",
            )
