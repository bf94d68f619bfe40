"""What the router learns of its nodes: states, lives, models, load, and what they hold."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from prefix_cache.client import AsyncNodeClient, NodeInfo, NodeState
from prefix_cache.index import Identity
from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.index.tokens import as_token_bytes
from prefix_cache.testing import EngineConfig
from prefix_cache.testing import running_engine as running_test_engine
from router.claims.node_claims import NodeClaims
from router.config import NodeSpec, PoolConfig, RouterConfig
from router.dispatcher import Dispatcher
from router.engine_probe import EngineProbe
from router.nodes import Node
from router.prompts import BodyReader
from router.turn import Prompt
from router.watcher import Watchers
from tests.node.nodes import node_process, running_node

DEADLINE_S = 20.0
WHO = Identity("m")
TEXT = Prompt(200, b"x" * 200)


async def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.005)


@dataclass
class Engine:
    """What a bare engine answers to probes."""

    url: str = ""
    health: int = 200
    models: object = field(default_factory=lambda: {"data": [{"id": "m"}, {"id": "lora"}]})


@asynccontextmanager
async def running_engine() -> AsyncIterator[Engine]:
    engine = Engine()

    async def health(_: web.Request) -> web.Response:
        return web.Response(status=engine.health)

    async def models(_: web.Request) -> web.Response:
        return web.json_response(engine.models)

    app = web.Application()
    app.add_routes([web.get("/health", health), web.get("/v1/models", models)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    engine.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield engine
    finally:
        await runner.cleanup()


@dataclass
class Fleet:
    dispatcher: Dispatcher
    watchers: Watchers

    async def join(self, name: str, address: str = "", url: str = "") -> Node:
        """Take a node in; it was probed once."""
        node = self.dispatcher.add_node("default", NodeSpec(name, address, url))
        await self.watchers.start(node)
        return node

    async def leave(self, node: Node) -> None:
        self.dispatcher.remove_node(node)
        await self.watchers.stop(node)


@asynccontextmanager
async def fleet(pool: PoolConfig | None = None) -> AsyncIterator[Fleet]:
    """A router without nodes that probes eagerly."""
    config = RouterConfig(pools=(pool or PoolConfig(),), probe_interval_s=0.02, probe_timeout_s=2.0)
    dispatcher = Dispatcher(config)
    watchers = Watchers(dispatcher, config)
    try:
        yield Fleet(dispatcher, watchers)
    finally:
        await watchers.close()


def prompt(*tokens: int, block_size: int = 16) -> Prompt:
    hasher = BlockHasher(block_size, None)
    packed = as_token_bytes(tokens)
    whole = len(tokens) // block_size * block_size * 4
    chain = hasher.split(hasher.chain(hasher.root(WHO), packed[:whole], {}))
    return Prompt(len(tokens), b"", chain, block_size)


async def store(address: str, *tokens: int) -> None:
    async with AsyncNodeClient(address) as node:
        sequence = await node.acquire(WHO, list(tokens))
        await node.commit(sequence.id, len(tokens))
        await node.release(sequence.id)


FIRST = prompt(*range(65))
PLAIN = PoolConfig(tokenizer="bytes", chat_template="plain")


# --- engines --------------------------------------------------------------------------------


async def test_an_engine_that_is_well_is_ready_after_the_first_probe() -> None:
    async with running_engine() as engine, fleet() as router:
        node = await router.join("a", url=engine.url)
        assert node.state is NodeState.READY
        assert node.models == {"m", "lora"}


async def test_an_engine_that_is_not_well_failed_until_it_is() -> None:
    async with running_engine() as engine, fleet() as router:
        engine.health = 503
        node = await router.join("a", url=engine.url)
        assert node.state is NodeState.FAILED
        engine.health = 200
        await until(lambda: node.state is NodeState.READY)


async def test_an_engine_without_health_is_well_when_it_answers() -> None:
    async with running_engine() as engine, fleet() as router:
        engine.health = 404
        node = await router.join("a", url=engine.url)
        assert node.state is NodeState.READY


@pytest.mark.parametrize("models", ["none", {"data": 7}, {"data": [{}]}])
async def test_an_engine_that_says_no_models_serves_unknown_ones(models: object) -> None:
    async with running_engine() as engine, fleet() as router:
        engine.models = models
        node = await router.join("a", url=engine.url)
        assert node.state is NodeState.READY
        assert node.models == frozenset()


async def test_an_engine_nobody_listens_for_failed_and_keeps_nobody_from_starting() -> None:
    async with fleet() as router:
        node = await router.join("a", url="http://127.0.0.1:1")
        assert node.state is NodeState.FAILED


async def test_what_was_sent_to_an_engine_is_forgotten_when_it_comes_back() -> None:
    async with running_engine() as engine, fleet() as router:
        node = await router.join("a", url=engine.url)
        node.claims.served(TEXT, 0, None)
        assert node.claims.held_tokens(TEXT) == 192
        engine.health = 503
        await until(lambda: node.state is NodeState.FAILED)
        engine.health = 200
        await until(lambda: node.state is NodeState.READY)
        assert node.claims.held_tokens(TEXT) == 0


async def test_a_fault_of_the_router_does_not_end_the_probes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    models, faults = EngineProbe.models, iter([RuntimeError("a fault")])

    async def faulty(probe: EngineProbe) -> frozenset[str]:
        for fault in faults:
            raise fault
        return await models(probe)

    monkeypatch.setattr(EngineProbe, "models", faulty)
    async with running_engine() as engine, fleet() as router:
        node = await router.join("a", url=engine.url)
        assert node.state is NodeState.FAILED
        await until(lambda: node.state is NodeState.READY)
    assert "the probe of node a went wrong" in caplog.text


# --- cache nodes ----------------------------------------------------------------------------


async def test_what_a_node_held_before_is_known_by_a_late_watcher() -> None:
    async with running_node() as running, fleet() as early, fleet() as late:
        node = await early.join("a", running.address)
        await store(running.address, *range(65))
        await until(lambda: node.claims.held_tokens(FIRST) == 64)
        same = await late.join("a", running.address)
        await until(lambda: same.claims.held_tokens(FIRST) == 64)
        await store(running.address, *range(32), *range(100, 133))
        other = prompt(*range(32), *range(100, 133))
        for seen in (node, same):
            await until(lambda seen=seen: seen.claims.held_tokens(other) == 64)  # type: ignore[misc]


async def test_live_sequences_are_reported() -> None:
    async with running_node() as running, fleet() as router:
        node = await router.join("a", running.address)
        assert node.reported_running == 0
        async with AsyncNodeClient(running.address) as client:
            await client.acquire(WHO, [1, 2, 3])
        await until(lambda: node.reported_running == 1)


async def test_a_restarted_node_holds_nothing_of_before(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/node"
    async with fleet() as router:
        with node_process(listen=[address]):
            node = await router.join("a", address)
            await store(address, *range(65))
            await until(lambda: node.claims.held_tokens(FIRST) == 64)
            before = node.incarnation
        await until(lambda: node.state is NodeState.FAILED)
        with node_process(listen=[address]):
            await until(lambda: node.state is NodeState.READY)
            assert node.incarnation != before
            await until(lambda: node.claims.held_tokens(FIRST) == 0)


async def test_a_node_that_drains_takes_no_new_turns() -> None:
    async with fleet() as router:
        with node_process(drain_grace_s=DEADLINE_S) as process:
            node = await router.join("a", process.address)
            async with AsyncNodeClient(process.address) as client:
                await client.acquire(WHO, [1, 2, 3])
                process.process.terminate()
                await until(lambda: node.state is NodeState.DRAINING)
            process.process.kill()


async def test_a_node_of_another_block_size_is_refused_by_its_pool(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_node() as one, running_node(block_size=64) as other, fleet() as router:
        first = await router.join("a", one.address)
        second = await router.join("b", other.address)
        assert (first.state, second.state) == (NodeState.READY, NodeState.FAILED)
        assert "its block size is 64, that of its pool 'default' is 16" in caplog.text
        await router.leave(first)
        await until(lambda: second.state is NodeState.READY)


async def test_a_node_without_a_block_size_is_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    info = AsyncNodeClient.info

    async def without_block_size(client: AsyncNodeClient) -> NodeInfo:
        return replace(await info(client), block_size=0)

    monkeypatch.setattr(AsyncNodeClient, "info", without_block_size)
    async with running_node() as running, fleet() as router:
        node = await router.join("a", running.address)
        assert node.state is NodeState.FAILED
        assert "its block size is 0, that of its pool 'default' is above 0" in caplog.text


# --- both -----------------------------------------------------------------------------------


async def test_an_engine_goes_on_without_its_cache_node_but_claims_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"unix://{tmp_path}/node"
    async with running_engine() as engine, fleet() as router:
        with node_process(listen=[address]):
            node = await router.join("a", address, engine.url)
            await store(address, *range(65))
            await until(lambda: node.claims.held_tokens(FIRST) == 64)
        await until(lambda: node.claims.held_tokens(FIRST) == 0)
        assert node.state is NodeState.READY
        before = node.incarnation
        with node_process(listen=[address]):
            await until(lambda: node.incarnation != before)
            await store(address, *range(65))
            await until(lambda: node.claims.held_tokens(FIRST) == 64)
    assert caplog.text.count("goes on without its cache node") == 1


async def test_a_node_whose_engine_is_away_failed() -> None:
    async with running_node() as running, running_engine() as engine, fleet() as router:
        node = await router.join("a", running.address, engine.url)
        assert node.state is NodeState.READY
        engine.health = 500
        await until(lambda: node.state is NodeState.FAILED)


# --- tokens ---------------------------------------------------------------------------------


async def test_an_engine_is_claimed_to_hold_what_it_delivers() -> None:
    """The engine tells its cache node, that tells the router, whose tokens are the engine's."""
    body = {"model": "m", "messages": [{"role": "user", "content": "word " * 30}]}
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(running_node())
        config = EngineConfig(model="m", node=running.address)
        engine = await stack.enter_async_context(running_test_engine(config))
        router = await stack.enter_async_context(fleet(PLAIN))
        node = await router.join("a", running.address, engine.url)
        reader = BodyReader(router.dispatcher.pools)
        asked = reader.read("/v1/chat/completions", {}, json.dumps(body).encode()).prompt
        http = await stack.enter_async_context(aiohttp.ClientSession(engine.url))
        assert node.claims.held_tokens(asked) == 0
        await http.post("/v1/chat/completions", json=body)
        await until(lambda: node.claims.held_tokens(asked) > 0)
        async with http.post("/v1/chat/completions", json=body) as answer:
            usage = (await answer.json())["usage"]
        assert usage["prompt_tokens"] == asked.num_tokens == 174
        assert usage["prompt_tokens_details"]["cached_tokens"] == 160
        assert node.claims.held_tokens(asked) == 160


async def test_a_node_whose_engine_makes_other_tokens_is_known_by_text(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("jinja2")
    (tmp_path / "chat.jinja").write_text("<|tools|>\n{{ messages }}")
    other = PoolConfig(tokenizer="bytes", chat_template=str(tmp_path / "chat.jinja"))
    async with (
        running_node() as running,
        running_test_engine(EngineConfig(model="m")) as engine,
        fleet(other) as router,
    ):
        node = await router.join("a", running.address, engine.url)
        assert node.state is NodeState.READY
        assert isinstance(node.claims, NodeClaims)
        assert (node.claims.exact, node.claims.tokens_differ) == (False, True)
        assert (
            "makes other tokens of a conversation than the router, from token 12 on" in caplog.text
        )


async def test_an_engine_that_does_not_tokenize_is_believed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    async with running_node() as running, running_engine() as engine, fleet(PLAIN) as router:
        node = await router.join("a", running.address, engine.url)
        assert isinstance(node.claims, NodeClaims)
        assert (node.claims.exact, node.claims.tokens_differ) == (True, False)
        assert "its tokens were not checked" in caplog.text


# --- churn ----------------------------------------------------------------------------------


async def test_a_node_that_left_claims_nothing_and_is_not_probed() -> None:
    async with running_node() as running, fleet() as router:
        node = await router.join("a", running.address)
        await store(running.address, *range(65))
        await until(lambda: node.claims.held_tokens(FIRST) == 64)
        await router.leave(node)
        await store(running.address, *range(100, 165))
        assert node.claims.held_tokens(FIRST) == 0
        assert node.state is NodeState.GONE


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def test_a_thousand_nodes_that_come_and_go_leave_nothing_behind() -> None:
    async with running_node() as running, running_engine() as engine, fleet() as router:

        async def come_and_go(count: int) -> None:
            for number in range(count):
                address = running.address if number % 10 == 0 else ""
                await router.leave(await router.join("a", address, engine.url))

        await come_and_go(50)
        tasks, files = len(asyncio.all_tasks()), open_files()
        await come_and_go(1000)
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        await until(lambda: open_files() <= files + 10)


async def test_a_node_that_leaves_while_it_is_first_probed_leaves_nothing_behind() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with fleet() as router:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            joining = asyncio.create_task(router.join("a", url=url))
            await until(lambda: bool(list(router.dispatcher.nodes())))
            await router.leave(router.dispatcher.node("a"))
            node = await asyncio.wait_for(joining, DEADLINE_S)
            assert node.state is NodeState.GONE
