"""Replays against real nodes and a real router."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from prefix_cache.errors import NoNodeAvailable, Unavailable
from prefix_cache.replay.fleet import Fleet, running_fleet
from prefix_cache.replay.formats import Request
from prefix_cache.replay.measure.replay import Replay
from prefix_cache.replay.measure.running import RunningNode, RunningRouter
from prefix_cache.replay.measure.targets import LocalCache, Served, Target
from tests.cli.commands import running as command
from tests.replay.measure.words import UNLIMITED, counting, request

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
    assert replay.not_served.error == "the sequence needs 15 blocks, the pool has 10"


async def test_of_a_request_whose_answer_is_refused_nothing_is_left() -> None:
    async with fleet(num_blocks=10) as running:
        with RunningNode(running.nodes[0].address) as node:
            replay = replayed(node, [request(WORDS[:400], WORDS[400:800]), request(WORDS[:400])])

    assert (replay.all.requests, replay.not_served.requests) == (1, 1)
    assert (replay.all.cached_tokens, replay.carried_over_tokens) == (0, 0)


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


async def test_two_runs_on_fresh_fleets_give_the_same_numbers(tmp_path: Path) -> None:
    """To the byte: whatever the salts of the runs, and the order in which sets are iterated."""
    chats = tmp_path / "chats.jsonl"
    with chats.open("w") as lines:
        for chat in range(20):
            texts = (f"Is train {chat} late? " * 4, "Is the next one?")
            messages = [{"role": "user", "content": text} for text in texts]
            lines.write(json.dumps({"messages": messages}) + "\n")
    found = []
    for seed in ("1", "2"):
        async with fleet("prefix", num_blocks=60) as fresh:
            arguments = ["replay", str(chats), "--router", fresh.router.address, "--json"]
            with command(*arguments, PYTHONHASHSEED=seed) as replay:
                found.append(await asyncio.to_thread(replay.communicate))

    assert found[0] == found[1]
    answer = json.loads(found[0][0])
    assert (answer["requests"], answer["carried_over_tokens"]) == (40, 0)
    assert answer["loss"]["eviction"] > 0


async def test_a_run_waits_until_the_router_has_heard_what_the_request_before_left() -> None:
    """So new conversations go where their prompt is held, not over both nodes."""
    async with fleet("prefix") as running:
        with RunningRouter(running.router.address) as router:
            first = router.serve(request(WORDS, conversation="first"))
            served = [router.serve(request(WORDS, conversation=name)) for name in "abcdef"]

    assert served == [Served(384, first.node)] * 6


async def test_a_second_run_on_a_fleet_finds_nothing_of_the_first() -> None:
    async with fleet("sticky") as running:
        replays = []
        for _ in range(2):
            with RunningRouter(running.router.address) as router:
                replays.append(replayed(router, CHAT))

    assert [each.carried_over_tokens for each in replays] == [0, 0]


async def test_one_node_that_answers_is_enough_to_begin() -> None:
    async with fleet() as running:
        os.kill(running.nodes[0].pid, signal.SIGKILL)
        with RunningRouter(running.router.address, "run") as router:
            replay = replayed(router, CHAT)

    assert (replay.all.requests, replay.loss.routing) == (6, 0)
