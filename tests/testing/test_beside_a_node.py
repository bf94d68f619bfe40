"""An engine that tells a cache node what it holds."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Self

import pytest
import pytest_asyncio

from prefix_cache.client import AsyncNodeClient, AsyncSession, NodeClient, Operation, Result
from prefix_cache.index import Identity
from prefix_cache.node import Node, NodeConfig, node_service
from prefix_cache.plain_template import render, utf8_tokens
from prefix_cache.serving import serving
from prefix_cache.testing import Faults, told_memory
from tests.node.nodes import RunningNode, node_process, running_node
from tests.testing.engines import DEADLINE_S, cached, engine_client, text_of, until

QUESTION = "Why does the kettle sing before the water boils?"


@pytest_asyncio.fixture
async def node() -> AsyncIterator[RunningNode]:
    async with running_node() as running:
        yield running


@asynccontextmanager
async def node_at(address: str) -> AsyncIterator[Node]:
    node = Node(NodeConfig(num_blocks=64))
    async with serving(node_service(node), [address], grace_s=0):
        yield node


def held(node: Node, *contents: str, salt: str = "") -> int:
    """Tokens of a chat that the node knows to be cached."""
    messages: list[Any] = [
        {"role": role, "content": text}
        for role, text in zip(("user", "assistant", "user"), contents, strict=False)
    ]
    prompt = utf8_tokens(render(messages))
    return node.cache.match(Identity(model="test", salt=salt), prompt).num_cached_tokens


async def test_the_node_knows_what_the_engine_has_cached(node: RunningNode) -> None:
    async with engine_client(node=node.address) as client:
        first = await client.chat(QUESTION)
        assert held(node.node, QUESTION, text_of(first), "And?") == 80
        assert held(node.node, QUESTION, text_of(first), "And?", salt="other") == 0
        second = await client.chat(QUESTION, text_of(first), "And?")
    assert (cached(first), cached(second)) == (0, 80)
    assert node.node.cache.stats().live_sequences == 0


async def test_an_engine_wiped_without_a_word_finds_less_than_its_node_claims(
    node: RunningNode,
) -> None:
    async with engine_client(node=node.address) as client:
        await client.chat(QUESTION)
        client.engine.faults.set(Faults(wipe=True))
        assert held(node.node, QUESTION) == 64
        assert cached(await client.chat(QUESTION)) == 0
        assert cached(await client.chat(QUESTION)) == 64


async def test_a_new_engine_makes_the_node_forget_what_the_old_one_held(node: RunningNode) -> None:
    async with engine_client(node=node.address) as client:
        await client.chat(QUESTION)
    assert held(node.node, QUESTION) == 64
    async with engine_client(node=node.address) as client:
        assert held(node.node, QUESTION) == 0
        assert cached(await client.chat(QUESTION)) == 0
        assert held(node.node, QUESTION) == 64


async def test_an_engine_goes_on_alone_while_its_node_is_away() -> None:
    """And tells the next life of the node, which knows nothing, as soon as it finds it."""
    async with AsyncExitStack() as first_life:
        node = await first_life.enter_async_context(running_node())
        async with engine_client(node=node.address) as client:
            await client.chat(QUESTION)
            await first_life.aclose()
            assert cached(await client.chat(QUESTION)) == 64
            async with node_at(node.address) as second:
                deadline = time.monotonic() + DEADLINE_S
                while not held(second, QUESTION):
                    assert time.monotonic() < deadline
                    answer = await client.chat(QUESTION)
                assert cached(answer) == 0
                assert cached(await client.chat(QUESTION)) == 64


ALONE = "the engine goes on alone, its cache node cannot be told anything"


async def test_a_node_that_falls_silent_is_waited_for_once_and_told_again_when_it_wakes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(told_memory, "_TIMEOUT_S", 0.5)
    monkeypatch.setattr(told_memory, "_RETRY_INTERVAL_S", 0.05)
    asked = 0
    step = AsyncSession.step

    async def counted(self: AsyncSession, operations: Sequence[Operation]) -> list[Result]:
        nonlocal asked
        asked += 1
        return await step(self, operations)

    with node_process() as node, NodeClient(node.address) as there:
        async with engine_client(node=node.address) as client:
            await client.chat(QUESTION)
            monkeypatch.setattr(AsyncSession, "step", counted)
            node.signal(signal.SIGSTOP)
            assert cached(await client.chat(QUESTION)) == 64
            asked_once = asked
            for _ in range(5):
                assert cached(await client.chat(QUESTION)) == 64
            assert (asked_once, asked) == (1, 1)
            node.signal(signal.SIGCONT)

            before = there.stats().cached
            deadline = time.monotonic() + DEADLINE_S
            while there.stats().cached == before:
                assert time.monotonic() < deadline
                await client.chat("Another question altogether?")
    assert caplog.text.count(ALONE) == 1


async def test_a_node_of_another_block_size_is_complained_about_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, node: RunningNode
) -> None:
    monkeypatch.setattr(told_memory, "_RETRY_INTERVAL_S", 0.01)
    tried = 0

    class Counted(AsyncNodeClient):
        async def __aenter__(self) -> Self:
            nonlocal tried
            tried += 1
            return await super().__aenter__()

    monkeypatch.setattr(told_memory, "AsyncNodeClient", Counted)
    async with engine_client(node=node.address, block_size=32) as client:
        for expected in (0, 64, 64):
            assert cached(await client.chat(QUESTION)) == expected
        await until(lambda: tried > 3)
    assert caplog.text.count(ALONE) == 1
    assert "block_size" in caplog.text


async def test_a_node_without_room_does_not_stop_the_engine() -> None:
    async with (
        running_node(num_blocks=4) as small,
        engine_client(node=small.address) as client,
    ):
        for expected in (0, 64):
            assert cached(await client.chat(QUESTION)) == expected
        assert small.node.cache.stats().cached == 0


async def test_a_client_that_goes_while_the_node_is_asked_leaves_nothing_open_there() -> None:
    with node_process() as node, NodeClient(node.address) as stats:
        async with engine_client(node=node.address) as client:
            await client.chat(QUESTION)
            node.signal(signal.SIGSTOP)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await client.chat("Another question altogether?")
            node.signal(signal.SIGCONT)
            await until(lambda: client.engine.counts.in_flight == 0)
            await until(lambda: stats.stats().live_sequences == 0)
            assert cached(await client.chat(QUESTION)) == 64
