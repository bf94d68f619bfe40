"""Conversations played through real nodes and a router."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

import pytest

from prefix_cache.client import AsyncRouterClient
from prefix_cache.errors import NoNodeAvailable
from prefix_cache.replay.fleet import Fleet, running_fleet
from prefix_cache.replay.player import Play, Player, UnservedTurn
from prefix_cache.replay.rotation import in_rotation
from prefix_cache.replay.savings import Totals, sticky_turns
from prefix_cache.replay.sources import Source, chats, from_file, mission
from prefix_cache.replay.turns import Turn


@asynccontextmanager
async def player_on(
    *, num_nodes: int = 3, num_blocks: int = 65_536, policy: str = "sticky", reuse: bool = True
) -> AsyncIterator[tuple[Player, Fleet]]:
    async with (
        running_fleet(
            num_nodes=num_nodes, num_blocks=num_blocks, block_size=16, policy=policy
        ) as fleet,
        AsyncRouterClient(fleet.router.address) as router,
        Player(router, reuse=reuse) as player,
    ):
        yield player, fleet


def in_turns(source: Source) -> Iterator[Turn]:
    return in_rotation((each.turns() for each in source.conversations), window=8)


async def play(player: Player, source: Source) -> Play:
    return await player.play(in_turns(source), lambda: None)


async def test_every_turn_finds_all_full_blocks_of_the_turn_before() -> None:
    async with player_on(num_nodes=2) as (player, _):
        played = await play(player, mission())
    assert [turn.cached_tokens for turn in played.turns] == [
        *(0, 1696, 2400, 3088, 3792, 4496, 5200, 5888, 6592, 7296)
    ]
    assert len({turn.node for turn in played.turns}) == 1
    assert (played.not_served, played.retried_turns, played.lost_tokens) == ([], 0, 0)


async def test_a_second_play_on_the_same_nodes_is_served_from_the_first() -> None:
    """F036: the measuring tool pollutes the cache, which is why every arm has fresh nodes."""
    async with player_on(num_nodes=1) as (player, _):
        first = await play(player, mission())
        second = await play(player, mission())
    assert Totals.of(first.turns).cached_tokens == 40_448
    assert Totals.of(second.turns).cached_tokens == 43_392


async def test_without_reuse_nothing_is_found_though_all_of_it_is_cached() -> None:
    async with player_on(num_nodes=1, reuse=False) as (player, _):
        first = await play(player, mission())
        second = await play(player, mission())
    assert Totals.of(first.turns + second.turns) == Totals(87_000, 0)


async def test_turns_that_a_node_refuses_are_not_served_and_the_play_goes_on() -> None:
    """A pool of 200 blocks holds 3,200 tokens: the first three turns, answers included."""
    async with player_on(num_nodes=1, num_blocks=200) as (player, _):
        played = await play(player, mission())
        after = await play(player, Source("again", "", mission().conversations))
    assert [turn.turn for turn in played.turns] == [1, 2, 3]
    assert [turn.turn for turn in played.not_served] == [4, 5, 6, 7, 8, 9, 10]
    first = played.not_served[0]
    assert first == UnservedTurn("mission", 4, 3300, first.error)
    assert "207" in first.error
    assert "200" in first.error
    assert len(after.turns) == 3


async def test_an_answer_that_finds_no_room_is_not_served_and_leaves_nothing_behind() -> None:
    """The prompt of 1,200 tokens fits into 80 blocks, the answer of 500 does not."""
    async with player_on(num_nodes=1, num_blocks=80) as (player, _):
        turns = list(mission().conversations[0].turns())
        played = await player.play(turns[:1] * 3, lambda: None)
    assert [turn.turn for turn in played.not_served] == [1, 1, 1]
    assert len({turn.error for turn in played.not_served}) == 1


async def test_a_turn_above_the_message_limit_takes_no_other_with_it() -> None:
    """The node refuses the whole step, and with it ends the session."""
    token = b"\x00\x00\x00\x00"
    turns = [
        Turn("small", 1, token * 100, token * 10),
        Turn("big", 1, token * 17_000_000, token),
        Turn("small", 2, token * 200, token * 10),
    ]
    async with player_on(num_nodes=1) as (player, _):
        played = await player.play(turns, lambda: None)
    assert [(turn.conversation, turn.turn) for turn in played.turns] == [("small", 1), ("small", 2)]
    (refused,) = played.not_served
    assert (refused.conversation, refused.turn) == ("big", 1)
    assert played.retried_turns == 0


async def test_when_a_node_is_killed_the_play_goes_on_and_says_what_was_lost() -> None:
    source = chats()
    answers = {
        (turn.conversation, turn.number): len(turn.answer) // 4
        for conversation in source.conversations
        for turn in conversation.turns()
    }
    first_turns = 20
    turns = in_turns(source)
    async with player_on() as (player, fleet):
        before = await player.play(islice(turns, first_turns), lambda: None)
        victim = next(node for node in fleet.nodes if node.name == before.turns[-1].node)
        os.kill(victim.pid, signal.SIGKILL)
        after = await player.play(turns, lambda: None)

    assert len(after.turns) == 49 - first_turns
    assert victim.name not in {turn.node for turn in after.turns}
    assert after.not_served == []
    assert after.retried_turns <= 1  # none, if the router noticed before a turn did
    committed = {
        turn.conversation: turn.prompt_tokens + answers[turn.conversation, turn.turn]
        for turn in before.turns
        if turn.node == victim.name
    }
    assert after.lost_tokens == sum(committed.values()) > 0


async def test_when_no_node_is_left_the_play_ends() -> None:
    async with player_on(num_nodes=1) as (player, fleet):
        turns: Iterable[Turn] = mission().conversations[0].turns()
        await player.play(islice(turns, 1), lambda: None)
        os.kill(fleet.nodes[0].pid, signal.SIGKILL)
        with pytest.raises(NoNodeAvailable, match="n1"):
            await player.play(turns, lambda: None)


async def test_real_conversations_run_through(shared_data: Path) -> None:
    """The first ten of each file; all of them take minutes."""
    async with player_on(num_nodes=2) as (player, _):
        for path in sorted((shared_data / "conversations").glob("*.jsonl.gz")):
            whole = from_file(path)
            source = Source(whole.name, whole.tokens_are, whole.conversations[:10])
            played = await play(player, source)
            assert len(played.turns) == source.num_turns, path
            assert sticky_turns(played.turns) == 1.0, path
            for turn in played.turns:
                # What is left to compute is what the turn adds, and less than a block.
                if turn.turn > 1:
                    added = added_tokens(source, turn.conversation, turn.turn)
                    assert turn.prefilled_tokens < added + 16, path


def added_tokens(source: Source, name: str, number: int) -> int:
    conversation = next(c for c in source.conversations if c.name == name)
    return len(conversation.pieces[number - 1][0]) // 4
