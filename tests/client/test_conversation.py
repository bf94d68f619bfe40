"""Conversations: what a turn sends, and that they go on whatever the node has forgotten."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from prefix_cache import Identity, errors
from prefix_cache.client import (
    Acquire,
    AsyncConversation,
    AsyncNodeClient,
    Conversation,
    NodeClient,
    Release,
)
from prefix_cache.v1 import node_pb2
from tests.client.threads import InThread, SessionInThread
from tests.node.nodes import RunningNode, answers, node_process, running_node, wait_until

WHO = Identity("m")

Begin = Callable[..., Any]


@pytest.fixture
def prompts(running: RunningNode, monkeypatch: pytest.MonkeyPatch) -> list[node_pb2.Prompt]:
    """The prompts that reached the node to be acquired."""
    prompts: list[node_pb2.Prompt] = []
    acquire = running.node.acquire

    def recorded(request: node_pb2.AcquireRequest | node_pb2.AcquireOperation) -> Any:
        prompts.append(request.prompt)
        return acquire(request)

    monkeypatch.setattr(running.node, "acquire", recorded)
    return prompts


@pytest_asyncio.fixture(
    params=["synchronous", "asynchronous", "synchronous session", "asynchronous session"]
)
async def begin(request: Any, running: RunningNode) -> AsyncIterator[Begin]:
    """Begins a conversation of either kind at that node, behind the asynchronous interface."""
    in_session = "session" in request.param
    async with AsyncExitStack() as stack:
        if request.param.startswith("asynchronous"):
            client = await stack.enter_async_context(AsyncNodeClient(running.address))
            session = await stack.enter_async_context(client.session()) if in_session else None

            def begin(number: int = 0) -> Any:
                return AsyncConversation(session or client, WHO, sequence_id=number)

        else:
            blocking = stack.enter_context(NodeClient(running.address))
            opened = SessionInThread(blocking.session())
            if in_session:
                await stack.enter_async_context(opened)

            def begin(number: int = 0) -> Any:
                node = opened.session if in_session else blocking
                return InThread(Conversation(node, WHO, sequence_id=number))

        yield begin


async def test_each_turn_finds_what_the_turns_before_committed(begin: Begin) -> None:
    conversation = begin()
    cached = []
    for turn in range(4):
        sequence = await conversation.turn([turn] * 50)
        cached.append((sequence.num_cached_tokens, sequence.num_tokens))
        await conversation.append([100 + turn] * 20)
        await conversation.commit()
        await conversation.release()
    assert cached == [(0, 50), (64, 120), (128, 190), (208, 260)]


@pytest_asyncio.fixture
async def running() -> AsyncIterator[RunningNode]:
    """A node of 1,024 blocks of 16 tokens."""
    async with running_node(num_blocks=1024) as running:
        yield running


async def test_turn_100_sends_no_more_than_turn_2(
    begin: Begin, prompts: list[node_pb2.Prompt]
) -> None:
    """F080: each turn is one message; 32 new tokens come in and 96 of the answer are appended."""
    conversation = begin()
    for turn in range(100):
        await conversation.turn([turn] * 32)
        await conversation.append([1000 + turn] * 96)
        await conversation.commit()
        await conversation.release()
    assert len(prompts) == 100
    sizes = {prompt.ByteSize() - prompt.identity.ByteSize() for prompt in prompts[1:]}
    assert {len(prompt.tokens) for prompt in prompts[1:]} == {32 * 4}
    assert max(sizes) - min(sizes) <= 2  # The number of tokens before takes a digit more.
    assert prompts[-1].parent_num_tokens == 99 * 128


async def test_what_was_not_committed_is_sent_again(
    begin: Begin, prompts: list[node_pb2.Prompt]
) -> None:
    conversation = begin()
    await conversation.turn([1] * 50)
    await conversation.commit(40)
    sequence = await conversation.turn([2] * 10)
    assert (sequence.num_cached_tokens, sequence.num_tokens) == (32, 60)
    assert len(prompts[1].tokens) == (18 + 10) * 4
    await conversation.release()
    assert (await begin(1).turn([1] * 50 + [2] * 10)).num_cached_tokens == 32


async def test_a_prefix_that_was_evicted_makes_the_turn_send_all(
    running: RunningNode, begin: Begin, prompts: list[node_pb2.Prompt]
) -> None:
    conversation = begin()
    await conversation.turn([1] * 160)
    await conversation.commit()
    await conversation.release()
    # Another takes all blocks but four, so that the conversation keeps its first four.
    cache = running.node.cache
    cache.release(cache.acquire(WHO, [9] * (1020 * 16)))
    sequence = await conversation.turn([2] * 10)
    assert (sequence.num_cached_tokens, sequence.num_tokens) == (64, 170)
    assert [len(prompt.tokens) // 4 for prompt in prompts] == [160, 10, 170]
    await conversation.commit()
    await conversation.turn([3] * 10)
    assert len(prompts[-1].tokens) // 4 == 10 + 10


async def test_a_conversation_goes_on_after_a_reset(running: RunningNode, begin: Begin) -> None:
    conversation = begin()
    await conversation.turn([1] * 50)
    await conversation.commit()
    await conversation.release()
    running.node.cache.reset()
    sequence = await conversation.turn([2] * 10)
    assert (sequence.num_cached_tokens, sequence.num_tokens) == (0, 60)


async def test_a_turn_may_add_no_tokens(begin: Begin) -> None:
    """An answer is drawn once more: all 64 tokens are committed, 16 are computed again."""
    conversation = begin()
    await conversation.turn([1] * 64)
    await conversation.commit()
    sequence = await conversation.turn([])
    assert (sequence.num_cached_tokens, sequence.num_tokens) == (48, 64)


async def test_a_turn_that_is_refused_adds_nothing(running: RunningNode, begin: Begin) -> None:
    conversation = begin()
    await conversation.turn([1] * 50)
    await conversation.commit()
    with pytest.raises(errors.PromptTooLarge):
        await conversation.turn([2] * 20_000)
    with pytest.raises(errors.InvalidTokens):
        await conversation.turn([-1])
    with pytest.raises(errors.UnknownSequence, match="no turn of this conversation is open"):
        await conversation.append([1])
    sequence = await conversation.turn([3] * 10)
    assert (sequence.num_cached_tokens, sequence.num_tokens) == (48, 60)
    assert running.node.cache.stats().live_sequences == 1


async def test_a_turn_whose_lease_ran_out_is_opened_again() -> None:
    async with (
        running_node(lease_s=0.02) as running,
        AsyncNodeClient(running.address) as client,
    ):
        conversation = AsyncConversation(client, WHO)
        await conversation.turn([1] * 50)
        await conversation.commit()
        while (await client.stats()).live_sequences:
            pass
        with pytest.raises(errors.LeaseExpired):
            await conversation.append([2])
        assert (await conversation.turn([2])).num_cached_tokens == 48


async def test_a_turn_whose_worker_came_back_empty_is_opened_again(running: RunningNode) -> None:
    async with AsyncNodeClient(running.address) as client:
        conversation = AsyncConversation(client, WHO)
        await conversation.turn([1] * 40)
        await conversation.commit()
        running.node.meet_worker(8)
        with pytest.raises(errors.WorkerRestarted):
            await conversation.append([2])
        turn = await conversation.turn([2])
        assert (turn.num_tokens, turn.num_cached_tokens) == (41, 0)


async def test_extra_keys_hold_for_the_turns_after(
    begin: Begin, prompts: list[node_pb2.Prompt]
) -> None:
    with_cat, with_dog, without = begin(1), begin(2), begin(3)
    for conversation, keys in (
        (with_cat, [(20, 30, b"cat")]),
        (with_dog, [(20, 30, b"dog")]),
        (without, []),
    ):
        await conversation.turn([1] * 40, keys)
        await conversation.commit()
        await conversation.release()
        sequence = await conversation.turn([2] * 40, [(60, 61, b"bird")] if keys else ())
        assert sequence.num_cached_tokens == 32
        assert len(prompts[-1].tokens) // 4 == 8 + 40
        await conversation.commit()
        await conversation.release()
    keys = [(20, 30, b"cat"), (60, 61, b"bird")]
    assert (await begin(4).turn([1] * 40 + [2] * 40, keys)).num_cached_tokens == 64


async def test_extra_keys_hold_when_all_is_sent_again(running: RunningNode, begin: Begin) -> None:
    conversation = begin(1)
    await conversation.turn([1] * 40, [(20, 30, b"cat")])
    await conversation.commit()
    await conversation.release()
    running.node.cache.reset()
    await conversation.turn([2] * 40)
    await conversation.commit()
    await conversation.release()
    for key, cached in ((b"cat", 64), (b"dog", 16)):
        again = begin(2)
        sequence = await again.turn([1] * 40 + [2] * 40, [(20, 30, key)])
        assert sequence.num_cached_tokens == cached
        await again.release()


async def test_an_extra_key_over_what_is_committed_makes_it_another_conversation(
    begin: Begin, prompts: list[node_pb2.Prompt]
) -> None:
    conversation = begin()
    await conversation.turn([1] * 40)
    await conversation.commit()
    sequence = await conversation.turn([2], [(20, 30, b"cat")])
    assert sequence.num_cached_tokens == 16
    assert len(prompts[-1].tokens) // 4 == 41


async def test_a_cancelled_turn_leaves_nothing_open_behind_the_next(running: RunningNode) -> None:
    async with AsyncNodeClient(running.address) as client, client.session() as session:
        conversation = AsyncConversation(session, WHO, sequence_id=5)
        await conversation.turn([1] * 50)
        await conversation.commit()
        await conversation.release()
        turn = asyncio.create_task(conversation.turn([2] * 10))
        await asyncio.sleep(0)
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        sequence = await conversation.turn([3] * 10)
        assert (sequence.id, sequence.num_cached_tokens, sequence.num_tokens) == (5, 48, 60)
        assert running.node.cache.stats().live_sequences == 1


async def test_an_append_that_went_through_unseen_is_never_taken_for_the_next(
    running: RunningNode,
) -> None:
    """Cancelled at any moment, it may or may not have been carried out: both are told apart."""
    async with AsyncNodeClient(running.address) as client, client.session() as session:
        seen = set()
        for moment in range(8):
            conversation = AsyncConversation(session, WHO, sequence_id=moment)
            await conversation.turn([moment] * 50)
            append = asyncio.create_task(conversation.append([7] * 14))
            for _ in range(moment):
                await asyncio.sleep(0)
            append.cancel()
            await asyncio.wait([append])
            try:
                await conversation.append([8] * 14)
            except errors.UnknownSequence:
                seen.add("went through")
                await conversation.turn([8] * 14)
            else:
                seen.add("did not")
            await conversation.commit()
            await conversation.release()
            answered = [] if append.cancelled() else [7] * 14
            expected = [moment] * 50 + answered + [8] * 14
            (found,) = await session.step([Acquire(99, WHO, [*expected, 1])])
            cached = len(expected) // 16 * 16
            assert found.num_cached_tokens == cached  # type: ignore[union-attr]
            await session.step([Release(99)])
        assert seen == {"went through", "did not"}


def test_a_conversation_goes_on_at_a_node_that_was_killed_and_restarted() -> None:
    with node_process() as first, NodeClient(first.address) as client:
        conversation = Conversation(client, WHO)
        conversation.turn([1] * 50)
        conversation.commit()
        first.signal(signal.SIGKILL)
        first.wait()
        with pytest.raises(errors.Unavailable):
            conversation.turn([2] * 10)
        with node_process(listen=[first.address]):
            wait_until(lambda: answers(client))
            sequence = conversation.turn([2] * 10)
            assert (sequence.num_cached_tokens, sequence.num_tokens) == (0, 60)
            conversation.commit()
            assert conversation.turn([3] * 10).num_cached_tokens == 48


def test_a_conversation_moves_to_another_session() -> None:
    with node_process() as node, NodeClient(node.address) as client:
        with client.session() as session:
            conversation = Conversation(session, WHO, sequence_id=3)
            conversation.turn([1] * 50)
            conversation.commit()
        with client.session() as session:
            conversation.move_to(session)
            assert conversation.turn([2] * 10).num_cached_tokens == 48
            assert conversation.num_tokens == 60
