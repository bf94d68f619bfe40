"""What the router learns of its nodes: states, lives, models, load, and what they hold."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from random import Random

import aiohttp
import pytest

from prefix_cache.client import AsyncNodeClient, NodeInfo, NodeState
from prefix_cache.testing import EngineConfig
from prefix_cache.testing import running_engine as running_test_engine
from router.claims.node_claims import NodeClaims
from router.config import PoolConfig
from router.engine_probe import EngineProbe
from router.prompts import BodyReader
from router.turn import Prompt
from tests.node.nodes import node_process, running_node
from tests.router.probed import DEADLINE_S, WHO, fleet, prompt, running_engine, store, until

TEXT = Prompt(200, b"x" * 200)
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


async def test_those_that_hang_keep_nobody_from_being_seen() -> None:
    """More of them than an HTTP client commonly keeps connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as silent:
        async with running_engine() as engine, fleet() as router:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}"
            hanging = [
                asyncio.create_task(router.join(f"hanging-{number}", url=url))
                for number in range(110)
            ]
            await until(lambda: len(list(router.dispatcher.nodes())) == 110)
            node = await router.join("well", url=engine.url)
            assert node.state is NodeState.READY
            for task in hanging:
                task.cancel()
            await asyncio.gather(*hanging, return_exceptions=True)


async def test_pauses_between_probes_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[float, float]] = []

    def uniform(_: Random, least: float, most: float) -> float:
        drawn.append((least, most))
        return 0.0

    monkeypatch.setattr(Random, "uniform", uniform)
    async with running_engine() as engine, fleet(interval_s=600.0) as router:
        await router.join("a", url=engine.url)
        await until(lambda: engine.probes > 3)
    assert set(drawn) == {(0.8, 1.2)}


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


async def test_what_a_node_reported_to_run_is_over_when_it_is_away(tmp_path: Path) -> None:
    address = f"unix://{tmp_path}/node"
    async with running_engine() as engine, fleet() as router:
        with node_process(listen=[address]):
            node = await router.join("a", address, engine.url)
            async with AsyncNodeClient(address) as client:
                await client.acquire(WHO, [1, 2, 3])
                await until(lambda: node.reported_running == 1)
        await until(lambda: node.reported_running == 0)
        assert node.state is NodeState.READY


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


async def test_a_node_that_is_away_has_no_say_in_the_block_size() -> None:
    async with running_node(block_size=64) as other, fleet() as router:
        with node_process() as process:
            first = await router.join("a", process.address)
            assert first.state is NodeState.READY
        await until(lambda: first.state is NodeState.FAILED)
        second = await router.join("b", other.address)
        assert second.state is NodeState.READY


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


async def test_an_engine_goes_on_without_its_cache_node_but_claims_no_blocks(
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
        claims = node.claims
        await until(lambda: claims.exact)
        assert not claims.tokens_differ
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
