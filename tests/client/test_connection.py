"""Addresses of peers, checked before gRPC is asked."""

from __future__ import annotations

import re

import pytest

from prefix_cache.client import AsyncNodeClient, NodeClient, RouterClient
from prefix_cache.errors import InvalidArgument


@pytest.mark.parametrize(
    "address", ["127.0.0.1:50051", "node-1.fleet:1", "[::1]:65535", "unix:///run/a node.sock"]
)
def test_hosts_with_a_port_and_sockets_are_addresses(address: str) -> None:
    with NodeClient(address) as client:
        assert client.address == address


@pytest.mark.parametrize(
    "address",
    [
        *("", "localhost", ":50051", "localhost:", "localhost:0", "localhost:65536"),
        *("localhost:port", "http://localhost:1", "::1:1", "unix://", "unix:node.sock"),
        *("local host:1", "localhost:1\n", "local\x1b:1", "\ud800:1"),
    ],
)
async def test_anything_else_is_refused_by_every_client(address: str) -> None:
    expected = re.escape("expected host:port, [ipv6]:port or unix:///path")
    for client in (NodeClient, AsyncNodeClient, RouterClient):
        with pytest.raises(InvalidArgument, match=expected) as caught:
            client(address)
        assert caught.value.details == {"address": address}
