"""What a router accepts to be started with."""

from __future__ import annotations

from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument
from router.config import RouterConfig, parse_nodes


def test_nodes_are_read_in_order() -> None:
    nodes = parse_nodes(["b=127.0.0.1:50052", " a = unix:///run/a=1.sock", "c=[::1]:50053"])

    assert list(nodes.items()) == [
        ("b", "127.0.0.1:50052"),
        ("a", "unix:///run/a=1.sock"),
        ("c", "[::1]:50053"),
    ]


@pytest.mark.parametrize("text", ["", "a", "a=", "=127.0.0.1:1", "127.0.0.1:1", " = "])
def test_malformed_nodes_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgument, match="expected NAME=ADDRESS") as caught:
        parse_nodes(["ok=127.0.0.1:1", text])

    assert caught.value.details == {"node": text}


def test_a_name_or_an_address_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="two nodes are named 'a'"):
        parse_nodes(["a=127.0.0.1:1", "a=127.0.0.1:2"])
    with pytest.raises(InvalidArgument, match="two nodes have the address"):
        parse_nodes(["a=127.0.0.1:1", "b=127.0.0.1:1"])


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"nodes": {}}, "at least one node"),
        ({"policy": "best"}, "unknown policy 'best': expected one of sticky, round_robin"),
        ({"max_pins": 0}, "max_pins must be above 0, not 0"),
        ({"pin_ttl_s": -1.0}, "pin_ttl_s must be above 0, not -1.0"),
        ({"route_ttl_s": float("nan")}, "route_ttl_s must be above 0, not nan"),
        ({"probe_interval_s": 0.0}, "probe_interval_s must be above 0"),
        ({"probe_timeout_s": 0.0}, "probe_timeout_s must be above 0"),
    ],
)
def test_settings_no_router_can_work_with_are_refused(
    setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidArgument, match=message):
        RouterConfig(**{"nodes": {"a": "127.0.0.1:1"}, **setting})
