"""What the proxy measures of itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest

from tests.prometheus import described, documented, values
from tests.router.http.engines import STREAM_HEAD, answers, closes, hangs, running_engine, whole
from tests.router.http.eventually import eventually
from tests.router.http.proxies import Client, client_of, get, post, running_proxy

PREFIX = "prefix_cache_router_http_"


async def measured(client: Client) -> dict[str, float]:
    found = values((await client.ask(get("/metrics"))).body.decode())
    return {name.removeprefix(PREFIX): value for name, value in found.items()}


async def test_what_is_served_is_what_the_document_says() -> None:
    registry = CollectorRegistry()
    async with (
        running_engine() as engine,
        running_proxy([engine], registry=registry) as proxy,
        client_of(proxy) as client,
    ):
        await client.ask(post())
        assert described(generate_latest(registry).decode()) == documented("Metrics of the proxy")
    assert generate_latest(registry) == b""


async def test_a_scrape_has_everything_in_the_registry() -> None:
    registry = CollectorRegistry()
    Counter("moons", "How many.", registry=registry).inc(3)
    async with (
        running_engine() as engine,
        running_proxy([engine], registry=registry) as proxy,
        client_of(proxy) as client,
    ):
        got = await client.ask(get("/metrics"))
        assert got.headers["content-type"].startswith("text/plain; version=0.0.4")
        assert b"\nmoons_total 3.0\n" in got.body


async def test_each_way_a_request_can_end_is_counted() -> None:
    async with running_engine() as engine, running_proxy([engine]) as proxy:
        async with client_of(proxy) as client:
            engine.next_ones = [answers(whole(b"{}", "429 x"))]
            await client.ask(post())
            await client.ask(post())
            engine.next_ones = [closes()]
            await client.ask(post())
            engine.next_ones = [hangs()]
            async with client_of(proxy) as other:
                other.send(post())
                await eventually(lambda: len(engine.received) == 5)
            await proxy.settles()
            engine.next_ones = [closes(STREAM_HEAD)]
            assert not (await client.ask(post())).is_whole
        async with client_of(proxy) as client:
            await client.ask(post())
            now = await measured(client)
    assert now["answers_total{status=200}"] == 3
    assert now["answers_total{status=429}"] == 1
    assert now["answers_total{status=503}"] == 1
    assert now["first_byte_seconds_count"] == 4
    assert now["first_byte_seconds_bucket{le=+Inf}"] == 4
    assert 0 < now["first_byte_seconds_sum"] < 60
    assert now["stale_connections_total"] == 1
    assert now["clients_gone_total"] == 1
    assert now["cut_total"] == 1
    assert now["connections"] == 1
