"""What the router itself answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from prefix_cache.client import NodeState
from router.claims.claims import NoClaims
from router.claims.node_claims import NodeClaims
from router.claims.sent_text import SentText
from router.claims.text_tree import TextTree
from router.config import PoolConfig
from router.conversations import Pin
from router.directory import DirectoryCounts
from router.nodes import Home, Node
from router.turn import ConversationKey
from tests.router.http.engines import STREAM_HEAD, chunk, hangs, running_engine
from tests.router.http.eventually import eventually
from tests.router.http.proxies import (
    CHAT,
    Proxy,
    chat_body,
    client_of,
    get,
    post,
    proxy_and_engines,
    running_proxy,
)


async def test_health_and_readiness() -> None:
    async with proxy_and_engines(2) as (proxy, _), client_of(proxy) as client:
        assert (await client.ask(get("/ready"))).status == 200
        proxy.node("a").state = NodeState.FAILED
        got = await client.ask(get("/ready"))
        assert (got.status, got.json) == (200, {"ready": 1, "nodes": 2})
        proxy.node("b").state = NodeState.DRAINING
        got = await client.ask(get("/ready"))
        assert (got.status, got.json) == (503, {"ready": 0, "nodes": 2})
        assert (await client.ask(get("/health"))).status == 200


async def test_models_of_all_pools_are_one_list() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        got = (await client.ask(get("/v1/models"))).json
        assert got["object"] == "list"
        assert got["data"] == [
            {"id": "m", "object": "model", "created": 0, "owned_by": "prefix-cache"}
        ]


async def test_a_model_is_shown_by_its_name() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        proxy.dispatcher.pools["default"].config = PoolConfig(models=("org/m-1",))
        for path in ("/v1/models/org/m-1", "/v1/models/org%2Fm-1"):
            assert (await client.ask(get(path))).json["id"] == "org/m-1"
        got = await client.ask(get("/v1/models/else"))
        assert (got.status, got.error["code"]) == (404, "model_not_found")


async def test_a_decision_is_explained_without_being_made() -> None:
    async with proxy_and_engines(2) as (proxy, engines), client_of(proxy) as client:
        first = (await client.ask(post(path="/explain"))).json
        second = (await client.ask(post(path="/explain"))).json
        assert first == second
        assert first["reason"] == "new"
        assert {candidate["node"] for candidate in first["candidates"]} == {"a", "b"}
        assert [engine.received for engine in engines] == [[], []]
        assert proxy.dispatcher.turns_routed == 0
        body = b'{"model": "m", "prompt": "p"}'
        got = await client.ask(post(body, "/explain?path=/v1/completions"))
        assert got.status == 200
        got = await client.ask(post(body, "/explain?path=/else"))
        assert (got.status, got.error["param"]) == (400, "path")


async def test_where_a_body_leaves_what_was_sent_is_explained() -> None:
    stable = "You are a helpful assistant. " * 20
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        proxy.node("a").claims = NodeClaims(SentText("a", 1000, TextTree()))
        got = await client.ask(post(chat_body(stable + "One?"), "/explain"))
        assert got.json["leaves"] is None
        await client.ask(post(chat_body(stable + "One? " + stable)))
        got = await client.ask(post(chat_body(stable + "Two? " + stable), "/explain"))
        assert got.json["leaves"] == {
            "node": "a",
            "unit": "byte",
            "position": len('[{"role": "user", "content": "') + len(stable),
            "differs": True,
            "place": {"message": 0, "role": "user"},
        }


async def test_a_decision_of_the_past_is_explained_by_its_request() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        request_id = (await client.ask(post())).headers["x-request-id"]
        got = await client.ask(get(f"/explain?id={request_id}"))
        assert (got.json["node"], got.json["reason"]) == ("a", "new")
        got = await client.ask(get("/explain?id=never"))
        assert (got.status, got.error["code"]) == (404, "unknown_request")


async def test_conversations_and_nodes_are_shown() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        await client.ask(post(fields=b"X-Session-ID: s1\r\n"))
        await client.ask(post(fields=b"X-Session-ID: s2\r\n"))
        assert len((await client.ask(get("/conversations"))).json["conversations"]) == 2
        assert len((await client.ask(get("/conversations?limit=1"))).json["conversations"]) == 1
        assert (await client.ask(get("/conversations?limit=-1"))).error["param"] == "limit"
        [node] = (await client.ask(get("/nodes"))).json["nodes"]
        assert (node["name"], node["turns"]) == ("a", 2)


@pytest.mark.parametrize(
    ("path", "method", "allow"),
    [
        ("/health", "POST", "GET, HEAD"),
        ("/explain", "PUT", "GET, HEAD, POST"),
        (CHAT, "GET", "POST"),
        (CHAT, "OPTIONS", "POST"),
        ("/v1/models", "DELETE", "GET, HEAD"),
    ],
)
async def test_another_method_is_told_which_are_allowed(path: str, method: str, allow: str) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        got = await client.ask(f"{method} {path} HTTP/1.1\r\nHost: r\r\n\r\n".encode())
        assert (got.status, got.headers["allow"]) == (405, allow)
        assert got.error["type"] == "invalid_request_error"
        assert engine.received == []


async def test_an_unknown_path_is_not_found() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        got = await client.ask(get("/v1/nothing", b"X-Request-ID: r1\r\n"))
        assert (got.status, got.headers["x-request-id"]) == (404, "r1")
        assert "/v1/nothing" in got.error["message"]


@pytest.mark.parametrize("asked", [get("/health"), get("/metrics"), get("/no"), post(b"{")])
async def test_an_answer_of_the_router_itself_says_that_no_node_was_chosen(asked: bytes) -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        got = await client.ask(asked)
        assert got.headers["x-prefix-cache-node"] == "-"
        assert got.headers["x-prefix-cache-reason"] == "not_routed"


async def test_a_head_request_is_answered_without_a_body() -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        client.send(get("/health").replace(b"GET", b"HEAD"))
        got = await client.answer(to_head=True)
        assert (got.status, got.headers["content-length"]) == (200, "15")
        client.send(get(CHAT).replace(b"GET", b"HEAD"))
        assert (await client.answer(to_head=True)).status == 405
        assert await client.is_closed()


class Counting(dict[str, Node]):
    """Nodes, and how often they were looked through."""

    times = 0

    def values(self) -> Any:
        self.times += 1
        return super().values()


async def test_requests_sent_ahead_are_answered_in_turn_with_those_of_others() -> None:
    """Thousands fit into one read, and the router answers them itself."""
    async with (
        proxy_and_engines(1) as (proxy, _),
        client_of(proxy) as greedy,
        client_of(proxy) as other,
    ):
        pool = proxy.dispatcher.default_pool
        nodes = pool.nodes = Counting(pool.nodes)
        greedy.send(get("/ready") * 3000)
        await greedy.answer()
        assert nodes.times < 1000
        assert (await other.ask(get("/health"))).status == 200
        assert nodes.times < 1000
        for _ in range(2999):
            assert (await greedy.answer()).status == 200
        assert nodes.times == 3000


@pytest.mark.parametrize(
    ("body", "status", "param", "code"),
    [
        (b"", 400, None, None),
        (b"{", 400, None, None),
        (b"[]", 400, None, None),
        (b'{"messages": []}', 400, "model", None),
        (b'{"model": 1}', 400, "model", None),
        (b'{"model": "other"}', 404, "model", "model_not_found"),
        (b'{"model": "m", "messages": 1}', 400, "messages", None),
    ],
)
async def test_a_body_that_is_no_request_is_refused_and_the_connection_goes_on(
    body: bytes, status: int, param: str | None, code: str | None
) -> None:
    async with proxy_and_engines(1) as (proxy, [engine]), client_of(proxy) as client:
        got = await client.ask(post(body))
        assert (got.status, got.error["param"], got.error["code"]) == (status, param, code)
        assert got.error["type"] == "invalid_request_error"
        assert (await client.ask(post())).status == 200
        assert len(engine.received) == 1


class Elsewhere:
    """A directory that says where another router has a conversation, after a moment."""

    counts = DirectoryCounts()
    is_available = True

    def __init__(self, pin: Pin | None) -> None:
        self.pin = pin
        self.asked: list[ConversationKey] = []

    async def find_pin(self, key: ConversationKey) -> Pin | None:
        self.asked.append(key)
        await asyncio.sleep(0.01)
        return self.pin

    def put_pin(self, key: ConversationKey, pin: Pin) -> None:
        pass


@pytest.mark.parametrize("home", ["a", "b"])
async def test_a_conversation_goes_where_another_router_has_it(home: str) -> None:
    directory = Elsewhere(Pin(Home(home, 1), 10, 0.0, 0.0))
    async with (
        running_engine() as one,
        running_engine() as two,
        running_proxy([one, two], directory=directory) as proxy,
        client_of(proxy) as client,
    ):
        got = await client.ask(post(fields=b"X-Session-ID: s1\r\n"))
        assert got.headers["x-prefix-cache-node"] == home
        assert got.headers["x-prefix-cache-reason"] == "pinned"
        assert directory.asked == [ConversationKey("", "s1")]


@pytest.mark.parametrize("home", ["a", "b"])
async def test_a_conversation_is_explained_by_the_pin_of_another_router(home: str) -> None:
    async with (
        running_engine() as one,
        running_engine() as two,
        running_proxy([one, two], directory=Elsewhere(Pin(Home(home, 1), 10, 0.0, 0.0))) as proxy,
        client_of(proxy) as client,
    ):
        got = await client.ask(post(path="/explain", fields=b"X-Session-ID: s1\r\n"))
        assert (got.json["node"], got.json["reason"]) == (home, "pinned")
        assert (await client.ask(get("/health"))).status == 200
        assert proxy.dispatcher.turns_routed == 0


async def test_a_client_that_leaves_before_its_explanation_is_forgotten() -> None:
    class Silent(Elsewhere):
        async def find_pin(self, key: ConversationKey) -> Pin | None:
            self.asked.append(key)
            await asyncio.Event().wait()
            return None

    directory = Silent(None)
    async with running_engine() as engine, running_proxy([engine], directory=directory) as proxy:
        tasks = asyncio.all_tasks()
        async with client_of(proxy) as client:
            client.send(post(path="/explain"))
            await eventually(lambda: bool(directory.asked))
            assert asyncio.all_tasks() > tasks
        await eventually(lambda: asyncio.all_tasks() == tasks)


class Faulty(NoClaims):
    """Claims of which one step goes wrong."""

    def __init__(self, step: str) -> None:
        setattr(self, step, self._go_wrong)

    def _go_wrong(self, *_: object) -> int:
        raise RuntimeError("a fault")


async def test_an_error_within_an_explanation_is_said_and_ends_the_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxy_and_engines(1) as (proxy, _):
        proxy.node("a").claims = Faulty("held_tokens")
        async with client_of(proxy) as client:
            got = await client.ask(post(path="/explain"))
            assert (got.status, got.headers["connection"]) == (500, "close")
            assert "a fault" not in got.error["message"]
            assert await client.is_closed()
        assert "RuntimeError" in caplog.text
        proxy.node("a").claims = NoClaims()
        assert await post_explain(proxy) == 200


async def post_explain(proxy: Proxy) -> int:
    async with client_of(proxy) as client:
        return (await client.ask(post(path="/explain"))).status


async def test_a_client_that_leaves_while_the_directory_is_asked_is_forgotten() -> None:
    directory = Elsewhere(None)
    async with running_engine() as engine, running_proxy([engine], directory=directory) as proxy:
        async with client_of(proxy) as client:
            client.send(post())
            await eventually(lambda: bool(directory.asked))
        await asyncio.sleep(0.05)
        await proxy.settles()
        assert engine.received == []


async def test_an_internal_error_is_said_and_the_proxy_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        proxy.node("a").claims = Faulty("held_tokens")
        got = await client.ask(post(chat_body("secret")))
        assert got.status == 500
        assert "secret" not in got.error["message"]
        assert "RuntimeError" in caplog.text
        proxy.node("a").claims = NoClaims()
        assert (await client.ask(post())).status == 200


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_an_internal_error_within_a_stream_does_not_end_it_as_if_it_were_whole(
    version: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    registry = CollectorRegistry()
    async with (
        running_engine() as engine,
        running_proxy([engine], registry=registry) as proxy,
        client_of(proxy) as client,
    ):
        engine.next_ones = [hangs(STREAM_HEAD + chunk(b"data: 1\n\n"))]
        proxy.node("a").claims = Faulty("accepted")
        client.send(post().replace(b"1.1", version))
        await client.head()
        if version == b"1.0":
            with pytest.raises(ConnectionResetError):
                await client.reader.read()
        else:
            assert await client.chunk() == b"data: 1\n\n"
            assert b"internal error" in await client.chunk()
            assert await client.is_closed()
        await proxy.settles()
        assert "RuntimeError" in caplog.text
        assert registry.get_sample_value("prefix_cache_router_http_cut_total") == 1


@pytest.mark.parametrize("step", ["accepted", "served"])
async def test_an_internal_error_within_an_answer_ends_the_connection(
    step: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with proxy_and_engines(1) as (proxy, _):
        proxy.node("a").claims = Faulty(step)
        async with client_of(proxy) as client:
            await client.ask(post())
            assert await client.is_closed()
        assert "RuntimeError" in caplog.text
        proxy.node("a").claims = NoClaims()
        await proxy.settles()
        async with client_of(proxy) as client:
            assert (await client.ask(post())).status == 200


async def test_an_internal_error_after_the_turn_was_routed_is_answered_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxy_and_engines(1) as (proxy, _), client_of(proxy) as client:
        node = proxy.node("a")
        url, node.url = node.url, "http://no-port"
        assert (await client.ask(post())).status == 500
        assert await client.is_closed()
        assert "ValueError" in caplog.text
        await proxy.settles()
        node.url = url
        async with client_of(proxy) as another:
            assert (await another.ask(post())).status == 200
