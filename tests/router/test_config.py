"""What a router accepts to be started with."""

from __future__ import annotations

from typing import Any

import pytest

from prefix_cache.errors import InvalidArgument
from router.config import NodeSpec, PoolConfig, RouterConfig, parse_nodes


def test_nodes_are_read_in_order() -> None:
    nodes = parse_nodes(
        [
            "b=127.0.0.1:50052",
            " a = unix:///run/a=1.sock",
            "c=[::1]:50053, http://[::1]:8001/",
            "d=http://Engine",
        ]
    )

    assert nodes == (
        NodeSpec("b", "127.0.0.1:50052"),
        NodeSpec("a", "unix:///run/a=1.sock"),
        NodeSpec("c", "[::1]:50053", "http://[::1]:8001"),
        NodeSpec("d", "", "http://engine:80"),
    )


@pytest.mark.parametrize("text", ["", "a", "a=", "=127.0.0.1:1", "127.0.0.1:1", " = "])
def test_malformed_nodes_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgument, match="expected NAME=ADDRESS") as caught:
        parse_nodes(["ok=127.0.0.1:1", text])

    assert caught.value.details == {"node": text}


@pytest.mark.parametrize(
    ("places", "said"),
    [
        ("host", "malformed address 'host': expected HOST:PORT or"),
        ("host:0", "with a port from 1 to 65535"),
        ("host:65536", "with a port from 1 to 65535"),
        ("host:port", "malformed address 'host:port'"),
        ("::1:80", "malformed address '::1:80'"),
        ("a b:1", "malformed address 'a b:1'"),
        ("unix:run/a", "expected unix:///PATH"),
        ("https://host:1", "'https://host:1': engines are reached without TLS"),
        ("ftp://host:1", "malformed URL 'ftp://host:1': expected http://HOST:PORT"),
        ("http://host:1/v1", "malformed URL"),
        ("http://host:1?a", "malformed URL"),
        ("http://user@host:1", "malformed address 'user@host:1'"),
        ("http://[::1", "malformed URL"),
        ("http://", "malformed address"),
        ("h:1,h:2", "expected ADDRESS, URL or ADDRESS,URL"),
        ("http://h:1,http://h:2", "expected ADDRESS, URL or ADDRESS,URL"),
        ("h:1,", "malformed address ''"),
    ],
)
def test_malformed_places_are_refused_with_what_was_expected(places: str, said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        parse_nodes([f"a={places}"])
    assert said in str(refused.value)


@pytest.mark.parametrize("name", ["a b", "a\nb", "é", "a" * 129])
def test_a_name_that_no_header_can_carry_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="expected 1 to 128 visible ASCII characters"):
        parse_nodes([f"{name}=127.0.0.1:1"])


def test_a_name_an_address_or_a_url_given_twice_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="two nodes are named 'a'"):
        parse_nodes(["a=127.0.0.1:1", "a=127.0.0.1:2"])
    with pytest.raises(InvalidArgument, match=r"two nodes have the address '127.0.0.1:1'"):
        parse_nodes(["a=127.0.0.1:1", "b=127.0.0.1:1"])
    with pytest.raises(InvalidArgument, match=r"two nodes have the URL 'http://h:80'"):
        parse_nodes(["a=http://h", "b=http://H:80/"])


def test_a_node_of_one_pool_is_no_node_of_another() -> None:
    one, other = PoolConfig(name="one", nodes=parse_nodes(["a=h:1"])), parse_nodes(["a=h:2"])
    with pytest.raises(InvalidArgument, match="two nodes are named 'a'") as refused:
        RouterConfig(pools=(one, PoolConfig(name="other", nodes=other)))
    assert refused.value.details["setting"] == ("pools", "other", "nodes", "a")


NAN = float("nan")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"workers": 0, "http": "h:1"}, "workers is 0, expected 1 to 1024"),
        ({"workers": 2}, "workers is 2, expected 1 without http, whose port they share"),
        ({"redis_wait_s": 0}, "redis_wait_s is 0, expected 0.001 to 60.0"),
        ({"dns_interval_s": NAN}, "dns_interval_s is nan, expected 0.001 to 2592000.0"),
        ({"max_pins": 0}, "max_pins is 0, expected 1 to 2147483647"),
        ({"pin_ttl_s": -1.0}, "pin_ttl_s is -1.0, expected 0.001 to 2592000.0"),
        ({"route_ttl_s": NAN}, "route_ttl_s is nan, expected"),
        ({"max_decisions": 0}, "max_decisions is 0, expected"),
        ({"probe_interval_s": 0.0}, "probe_interval_s is 0.0, expected"),
        ({"probe_timeout_s": 0.0}, "probe_timeout_s is 0.0, expected"),
        ({"max_head_bytes": 255}, "max_head_bytes is 255, expected 256 to 2147483647"),
        ({"max_body_bytes": 0}, "max_body_bytes is 0, expected"),
        ({"head_timeout_s": 0}, "head_timeout_s is 0, expected"),
        ({"connect_timeout_s": 0}, "connect_timeout_s is 0, expected"),
        ({"first_byte_timeout_s": 0}, "first_byte_timeout_s is 0, expected"),
        ({"idle_timeout_s": float("inf")}, "idle_timeout_s is inf, expected"),
        ({"attempts": 0}, "attempts is 0, expected 1 to 100"),
        ({"listen": ()}, "listen is [], expected an address, or a value for http"),
        ({"http": "8080"}, "http: malformed address '8080'"),
        ({"redis": "http://h"}, "redis is no URL of a Redis, expected redis://HOST:PORT or"),
        ({"pools": ()}, "pools is [], expected a pool or more"),
        ({"pools": (PoolConfig(), PoolConfig())}, "expected different names"),
        (
            {"pools": (PoolConfig(registry=True),)},
            "pools.default.registry is True, expected a value for redis as well",
        ),
        (
            {"pools": (PoolConfig(models=("m",)), PoolConfig(name="b", models=("m",)))},
            "pools.b.models: the model 'm' is listed by the pool 'default' too",
        ),
    ],
)
def test_settings_no_router_can_work_with_are_refused(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        RouterConfig(**{"pools": (PoolConfig(),), **setting})
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"policy": "best"}, "pools.chat.policy is 'best', expected one of sticky, "),
        ({"max_load_factor": 0.5}, "max_load_factor is 0.5, expected 0, or 1 to 1000"),
        ({"max_load_factor": NAN}, "max_load_factor is nan, expected 0, or 1 to 1000"),
        ({"sent_blocks": 0}, "pools.chat.sent_blocks is 0, expected 1 to 2147483647"),
        ({"chat_template": "plain"}, "chat_template is 'plain', expected it only with a tok"),
        ({"models": ("m", "")}, "pools.chat.models is ('m', ''), expected names"),
        ({"dns": "engines"}, "pools.chat.dns: malformed address 'engines'"),
        ({"dns": "unix:///run/a"}, "pools.chat.dns is 'unix:///run/a', expected a URL or HOST"),
    ],
)
def test_settings_no_pool_can_work_with_are_refused(setting: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        PoolConfig(name="chat", **setting)
    assert said in str(refused.value)


def test_an_error_in_the_url_of_redis_does_not_tell_the_password() -> None:
    with pytest.raises(InvalidArgument) as refused:
        RouterConfig(pools=(PoolConfig(),), redis="redis://:secret@host:port")
    assert "secret" not in str(refused.value)
    assert "secret" not in str(refused.value.details)


@pytest.mark.parametrize(
    "url", ["redis://h", "redis://u:p@h:1/3", "rediss://h:1", "redis+cluster://10.0.0.1:7000"]
)
def test_urls_of_redis_that_are_accepted(url: str) -> None:
    assert RouterConfig(pools=(PoolConfig(registry=True),), redis=url).redis == url
