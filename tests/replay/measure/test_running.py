"""Replays against real nodes and a real router."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from prefix_cache.client import RoutePrompt, RouterClient
from prefix_cache.errors import NoNodeAvailable, Unavailable
from prefix_cache.index import Identity
from prefix_cache.replay.fleet import Fleet, running_fleet
from prefix_cache.replay.formats import Request
from prefix_cache.replay.measure.replay import Replay
from prefix_cache.replay.measure.running import RunningNode, RunningRouter
from prefix_cache.replay.measure.targets import UNLIMITED, LocalCache, Served, Target
from tests.node.nodes import wait_until
from tests.replay.measure.words import counting, request

WORDS = counting(0, 400)
CHAT = [
    request(WORDS[: 4 * end], WORDS[4 * end : 4 * (end + 30)], f"chat {name}", turn)
    for turn, end in enumerate((100, 200, 300), start=1)
    for name in "ab"
]


def replayed(target: Target, requests: list[Request]) -> Replay:
    replay = Replay(target)
    for each in requests:
        replay.play(each)
    return replay


@asynccontextmanager
async def fleet(policy: str = "sticky", num_blocks: int = 1000) -> AsyncIterator[Fleet]:
    async with running_fleet(
        num_nodes=2, num_blocks=num_blocks, block_size=16, policy=policy
    ) as running:
        yield running


async def test_a_running_node_gives_the_figures_of_a_cache_in_process() -> None:
    """F036: two runs with salts of their own give the same, a third with one of these warns."""
    here = replayed(LocalCache(UNLIMITED, 16), CHAT)
    async with fleet() as running:
        replays = []
        for salt in ("one", "two", "two"):
            with RunningNode(running.nodes[0].address, salt) as node:
                assert (node.block_words, node.num_blocks) == (16, 1000)
                replays.append(replayed(node, CHAT))

    first, second, carried = replays
    assert first.all == second.all == here.all
    assert first.loss == second.loss == here.loss
    assert [each.carried_over_tokens for each in replays[:2]] == [0, 0]
    assert carried.carried_over_tokens == carried.all.cached_tokens - here.all.cached_tokens > 0


async def test_what_a_router_sends_elsewhere_is_lost_by_routing() -> None:
    """Round robin is the arm that must lose (F039); sticky keeps each chat at its node."""
    losses = {}
    for policy in ("sticky", "round_robin"):
        async with fleet(policy) as running:
            with RunningRouter(running.router.address, "run") as router:
                assert router.block_words == 16
                # Three in turns over two nodes: each comes to the other one at its next turn.
                three = [request(each.prompt, each.answer, each.conversation) for each in CHAT[::2]]
                replay = replayed(router, three)
        losses[policy] = replay.loss
        assert replay.loss.tokens == replay.all.totals.prefilled_tokens
        assert replay.loss.eviction == 0

    assert losses["sticky"].routing == 0
    assert losses["round_robin"].routing > 0


async def test_a_prompt_that_a_node_refuses_is_not_served_and_the_replay_goes_on() -> None:
    async with fleet(num_blocks=10) as running:
        with RunningRouter(running.router.address, "run") as router:
            replay = replayed(router, CHAT[::2])

    assert (replay.all.requests, replay.not_served.requests) == (1, 2)
    assert "the pool has 10" in replay.not_served.error


async def test_a_node_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(Unavailable), RunningNode("127.0.0.1:1", "salt"):
        pass


async def test_when_no_node_is_left_the_replay_ends() -> None:
    async with fleet() as running:
        router = RunningRouter(running.router.address, "run").__enter__()
        replayed(router, CHAT[:1])
    with pytest.raises((NoNodeAvailable, Unavailable)):
        replayed(router, CHAT[1:])
    router.__exit__(None, None, None)


async def test_a_new_conversation_goes_where_its_prompt_is_held() -> None:
    """The router is told the prompts: without, it would spread them over both nodes."""
    async with fleet("prefix") as running:
        with (
            RouterClient(running.router.address) as client,
            RunningRouter(running.router.address, "run") as router,
        ):
            first = router.serve(request(WORDS, conversation="first"))
            prompt = RoutePrompt(Identity(model="replay", salt="run"), WORDS)

            def held() -> int:
                explained = client.explain("new", prompt=prompt)
                return max(each.cached_tokens for each in explained.candidates)

            wait_until(lambda: held() == 384)
            served = [router.serve(request(WORDS, conversation=name)) for name in "abcdef"]

    assert served == [Served(384, first.node)] * 6


async def test_one_node_that_answers_is_enough_to_begin() -> None:
    async with fleet() as running:
        os.kill(running.nodes[0].pid, signal.SIGKILL)
        with RunningRouter(running.router.address, "run") as router:
            replay = replayed(router, CHAT)

    assert (replay.all.requests, replay.loss.routing) == (6, 0)
