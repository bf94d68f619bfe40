from __future__ import annotations

import pytest

from prefix_cache.addresses import split_host_and_port
from prefix_cache.errors import CannotListen, InvalidArgument
from prefix_cache.listening import host_and_port


@pytest.mark.parametrize(
    ("address", "split"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("node_1.local:65535", ("node_1.local", 65535)),
        ("[::1]:80", ("[::1]", 80)),
        ("[fe80::1%eth0]:80", ("[fe80::1%eth0]", 80)),
    ],
)
def test_an_address_to_reach_and_one_to_listen_on_are_read_alike(
    address: str, split: tuple[str, int]
) -> None:
    assert split_host_and_port(address) == split
    assert host_and_port(address) == split


@pytest.mark.parametrize("address", ["host", ":80", "::1:80", "[::1%]:80", "a b:1", "h:65536"])
def test_what_is_no_address_is_neither(address: str) -> None:
    with pytest.raises(InvalidArgument, match="expected HOST:PORT"):
        split_host_and_port(address)
    with pytest.raises(CannotListen, match=r"expected host:port or \[ipv6\]:port$"):
        host_and_port(address)


def test_port_0_is_one_to_listen_on_only() -> None:
    assert host_and_port("127.0.0.1:0") == ("127.0.0.1", 0)
    with pytest.raises(InvalidArgument, match="a port from 1 to 65535"):
        split_host_and_port("127.0.0.1:0")
