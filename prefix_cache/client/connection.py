"""One channel to one peer: calls with a deadline that raise typed errors."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Self, TypeVar

import grpc
from grpc import aio

from prefix_cache.errors import InvalidArgument
from prefix_cache.wire import DEFAULT_MAX_MESSAGE_BYTES, error_from_rpc, message_options

Request = TypeVar("Request")
Response = TypeVar("Response")

_ADDRESS = re.compile(r"unix:///.+|(?:\[[^][]+]|[^][:/\s]+):(?P<port>[0-9]{1,5})")

_OPTIONS = [
    *message_options(DEFAULT_MAX_MESSAGE_BYTES),
    # A peer that comes back is found again within a second or two, not within two minutes.
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # A stream may be silent for any time; a peer that is gone without a word is noticed all the
    # same within 90 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.http2.ping_timeout_ms", 60_000),
    # Peers are inside the fleet; a proxy set for the outside world must not catch them.
    ("grpc.enable_http_proxy", 0),
]


def _checked(address: str) -> str:
    # gRPC takes any text, and looks for it until the deadline.
    match = _ADDRESS.fullmatch(address) if address.isprintable() else None
    if match is None or int(match["port"] or 1) not in range(1, 65536):
        raise InvalidArgument(
            f"the address is {address!r}, expected host:port, [ipv6]:port or unix:///path",
            address=address,
        )
    return address


class Connection:
    """A channel for synchronous clients.  ``timeout_s`` holds for each call.

    Raises ``InvalidArgument`` for an address that is none.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = _checked(address)
        self.timeout_s = timeout_s
        self.channel = grpc.insecure_channel(address, options=_OPTIONS)

    def call(
        self, method: grpc.UnaryUnaryMultiCallable[Request, Response], request: Request
    ) -> Response:
        """Make one call; what it fails with becomes a typed error."""
        try:
            return method(request, timeout=self.timeout_s)
        except grpc.RpcError as error:
            raise error_from_rpc(error, self.address) from error

    def close(self) -> None:
        """Close the channel."""
        self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncConnection:
    """A channel for asynchronous clients.  ``timeout_s`` holds for each call.

    Raises ``InvalidArgument`` for an address that is none.
    """

    def __init__(self, address: str, timeout_s: float) -> None:
        self.address = _checked(address)
        self.timeout_s = timeout_s
        self.channel = aio.insecure_channel(address, options=_OPTIONS)

    async def call(
        self, method: aio.UnaryUnaryMultiCallable[Request, Response], request: Request
    ) -> Response:
        """Make one call; what it fails with becomes a typed error."""
        try:
            return await method(request, timeout=self.timeout_s)
        except aio.AioRpcError as error:
            raise error_from_rpc(error, self.address) from error

    async def close(self) -> None:
        """Close the channel."""
        await self.channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()
