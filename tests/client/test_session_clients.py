"""Both clients' sessions: the engine's way into a node."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import pytest

from prefix_cache import Identity, errors
from prefix_cache.client import (
    Acquire,
    AcquiredSequence,
    Append,
    Appended,
    AsyncNodeClient,
    Commit,
    Committed,
    Fork,
    Forked,
    NodeClient,
    Release,
    Released,
)
from prefix_cache.index import Prefix
from tests.node.nodes import RunningNode, node_process

WHO = Identity("m")


async def test_a_session_says_what_the_node_is(client: Any, running: RunningNode) -> None:
    async with client.session(block_size=16, model="m") as session:
        assert (session.block_size, session.num_blocks) == (16, 64)
        assert session.incarnation == running.node.incarnation


async def test_results_come_in_order_each_of_its_kind(client: Any) -> None:
    async with client.session() as session:
        first, *others = await session.step(
            [
                Acquire(7, WHO, list(range(40))),
                Commit(7, 33),
                Fork(8, 7),
                Append(8, [1, 2]),
                Release(7),
            ]
        )
        assert isinstance(first, AcquiredSequence)
        assert (first.id, first.num_cached_tokens, first.num_tokens) == (7, 0, 40)
        assert first.block_table.tolist() == [0, 1, 2]
        assert others == [
            Committed(33, Prefix(bytes.fromhex("e8033acfc9ae505fb3916e80027aec68"), 32)),
            Forked(),
            Appended((), ((2, 3),), 42),
            Released(),
        ]
        (second,) = await session.step([Acquire(7, WHO, list(range(40)))])
        assert second.num_cached_tokens == 32


async def test_a_failed_operation_is_a_result_and_the_others_go_on(client: Any) -> None:
    async with client.session() as session:
        results = await session.step(
            [Acquire(1, WHO, [0] * 2000), Release(1), Acquire(1, WHO, [1]), Acquire(1, WHO, [1])]
        )
        too_large, unknown, opened, exists = results
        assert type(too_large) is errors.PromptTooLarge
        assert too_large.details == {"needed": "125", "num_blocks": "64"}
        assert type(unknown) is errors.UnknownSequence
        assert opened.num_tokens == 1
        assert type(exists) is errors.SequenceExists
        assert await session.step([Commit(1, 1)]) == [Committed(1, None)]


async def test_an_operation_that_no_message_holds_sends_nothing(
    client: Any, running: RunningNode
) -> None:
    async with client.session() as session:
        for operation, expected in (
            (Acquire(1, WHO, [-1]), errors.InvalidTokens),
            (Release(-1), errors.InvalidArgument),
            (Fork(1, 2**64), errors.InvalidArgument),
            (Commit(1, -1), errors.InvalidArgument),
        ):
            with pytest.raises(expected):
                await session.step([Acquire(5, WHO, [1]), operation])
        assert running.node.cache.stats().live_sequences == 0
        assert await session.step([]) == []


async def test_leaving_the_session_has_ended_its_sequences(
    client: Any, running: RunningNode
) -> None:
    with pytest.raises(RuntimeError, match="the engine crashed"):  # noqa: PT012
        async with client.session() as session:
            await session.step([Acquire(1, WHO, list(range(40))), Commit(1, 40), Fork(2, 1)])
            assert running.node.cache.stats().live_sequences == 2
            raise RuntimeError("the engine crashed")
    stats = running.node.cache.stats()
    assert (stats.live_sequences, stats.private, stats.evictable) == (0, 0, 2)


async def test_one_client_has_many_sessions_and_their_numbers_do_not_clash(client: Any) -> None:
    async with client.session() as one, client.session() as other:
        await one.step([Acquire(1, WHO, [1] * 20)])
        (result,) = await other.step([Acquire(1, WHO, [2] * 20)])
        assert result.block_table.tolist() == [2, 3]
        assert await other.step([Release(1)]) == [Released()]
        assert await one.step([Append(1, [5])]) == [Appended((), (), 21)]


async def test_a_refused_session_raises_when_it_is_opened(client: Any) -> None:
    session = client.session(block_size=64)
    with pytest.raises(errors.IdentityMismatch, match="block_size is 64, this node's is 16"):
        await session.__aenter__()


async def test_several_steps_are_under_way_at_once(running: RunningNode) -> None:
    async with AsyncNodeClient(running.address) as client, client.session() as session:
        await session.step([Acquire(1, WHO, [1])])
        results = await asyncio.gather(*(session.step([Append(1, [2])]) for _ in range(50)))
        assert [appended.num_tokens for (appended,) in results] == list(range(2, 52))  # type: ignore[union-attr]


async def test_a_cancelled_step_does_not_disturb_the_others(running: RunningNode) -> None:
    async with AsyncNodeClient(running.address) as client, client.session() as session:
        await session.step([Acquire(1, WHO, [1])])
        cancelled = asyncio.create_task(session.step([Append(1, [2])]))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert await session.step([Append(1, [3])]) == [Appended((), (), 3)]


async def test_steps_cancelled_at_any_moment_leave_the_session_whole(running: RunningNode) -> None:
    async with AsyncNodeClient(running.address) as client, client.session() as session:
        for moment in range(300):
            step = asyncio.create_task(session.step([]))
            for _ in range(moment % 30):
                await asyncio.sleep(0)
            step.cancel()
            await asyncio.wait([step])
        assert await session.step([]) == []


class Interrupted(Exception):
    """What a Ctrl-C raises in the middle of a step."""


def test_the_answer_to_an_interrupted_step_is_not_taken_for_the_next_ones() -> None:
    def interrupt(number: int, frame: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with (
            node_process() as node,
            NodeClient(node.address) as client,
            client.session() as session,
        ):
            session.step([Acquire(1, WHO, [1])])
            node.signal(signal.SIGSTOP)
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(Interrupted):
                session.step([Append(1, [2])])
            node.signal(signal.SIGCONT)
            assert session.step([Append(1, [3])]) == [Appended((), (), 3)]
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("steps_before", [0, 3])
def test_a_killed_node_breaks_the_session_for_good(steps_before: int) -> None:
    with (
        node_process() as node,
        NodeClient(node.address) as client,
        client.session() as session,
    ):
        for number in range(steps_before):
            session.step([Acquire(number, WHO, [1])])
        node.signal(signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(errors.Unavailable, match=node.address):
                session.step([Acquire(100, WHO, [1])])


async def test_a_killed_node_fails_every_step_under_way() -> None:
    with node_process() as node:
        async with AsyncNodeClient(node.address) as client, client.session() as session:
            node.signal(signal.SIGSTOP)
            steps = [asyncio.create_task(session.step([Acquire(n, WHO, [1])])) for n in range(3)]
            await asyncio.sleep(0)
            node.signal(signal.SIGKILL)
            outcomes = await asyncio.gather(*steps, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [errors.Unavailable] * 3
            with pytest.raises(errors.Unavailable):
                await session.step([])


async def test_a_node_that_stands_still_breaks_the_session_after_the_timeout() -> None:
    with node_process() as node:
        async with AsyncNodeClient(node.address, timeout_s=0.3) as client:
            async with client.session() as session:
                node.signal(signal.SIGSTOP)
                for _ in range(2):
                    with pytest.raises(errors.DeadlineExceeded, match="no answer to a step"):
                        await session.step([Acquire(1, WHO, [1])])
            with pytest.raises(errors.DeadlineExceeded):
                await client.stats()
        with NodeClient(node.address, timeout_s=0.3) as blocking:
            node.signal(signal.SIGCONT)
            with blocking.session() as blocking_session:
                blocking_session.step([])
                node.signal(signal.SIGSTOP)
                for _ in range(2):
                    with pytest.raises(errors.DeadlineExceeded, match="no answer to a step"):
                        blocking_session.step([Acquire(1, WHO, [1])])


@pytest.mark.parametrize("field", ["model", "kv_dtype"])
async def test_text_that_no_message_holds_opens_no_session(client: Any, field: str) -> None:
    with pytest.raises(errors.InvalidArgument, match=rf"{field} is '\\ud800', expected text"):
        client.session(**{field: "\ud800"})
