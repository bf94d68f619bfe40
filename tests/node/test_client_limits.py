"""What one client may hold: one outcome whatever is cached, with the values, and counted."""

from __future__ import annotations

import pytest

from prefix_cache import Identity
from prefix_cache.client import (
    Acknowledge,
    Acquire,
    AcquiredSequence,
    Append,
    Appended,
    AsyncNodeClient,
    Fork,
    Forked,
    Release,
    Released,
)
from prefix_cache.errors import (
    ClientLimit,
    InvalidArgument,
    MessageTooLarge,
    PrefixCacheError,
    PromptTooLarge,
    UnknownPrefix,
)
from prefix_cache.index import Prefix
from prefix_cache.node import Node, NodeConfig
from prefix_cache.node.quotas import Holding, Holdings
from prefix_cache.node.sequences import NumberedSequences
from prefix_cache.v1 import node_pb2
from tests.node.client_processes import eventually
from tests.node.host_tiers import CHAT, evict_the_chat, tiers
from tests.node.nodes import running_node

WHO = Identity("m")


def details(result: object) -> dict[str, object]:
    assert isinstance(result, ClientLimit), result
    return result.details


async def test_a_session_has_no_more_sequences_than_one_client_may() -> None:
    async with (
        running_node(max_sequences_per_client=2) as running,
        AsyncNodeClient(running.address) as client,
        client.session() as session,
        client.session() as other,
    ):
        results = await session.step(
            [Acquire(1, WHO, [1]), Fork(2, 1), Acquire(3, WHO, [2]), Fork(3, 1)]
        )
        for refused in results[2:]:
            expected = {"what": "sequences", "held": "2", "needed": "1", "limit": "2"}
            assert details(refused) == expected
        results = await session.step([Append(1, [5]), Release(2), Fork(3, 1)])
        assert results == [Appended((), ((0, 1),), 2), Released(), Forked()]
        # Another session has a limit of its own, and so have the callers outside of sessions.
        (acquired,) = await other.step([Acquire(1, WHO, [1])])
        assert isinstance(acquired, AcquiredSequence)
        await client.acquire(WHO, [1])
        assert running.node.quotas.refusals == 2


async def test_a_client_has_no_more_blocks_than_it_may_whatever_is_cached() -> None:
    async with (
        running_node(max_blocks_per_client=4) as running,
        AsyncNodeClient(running.address) as client,
        client.session() as session,
    ):
        for _ in range(2):  # The second time all of it is cached.
            results = await session.step(
                [
                    Acquire(1, WHO, [1] * 65),
                    Acquire(1, WHO, [1] * 48),
                    Append(1, [2] * 16),
                    Append(1, [3]),
                    Acquire(2, WHO, [1]),
                    Fork(2, 1),
                    Release(1),
                ]
            )
            assert [type(result) for result in results] == [
                PromptTooLarge,
                AcquiredSequence,
                Appended,
                ClientLimit,
                ClientLimit,
                ClientLimit,
                Released,
            ]
            assert str(results[0]) == "one client may hold 4 blocks, 5 are needed at once"
            assert details(results[3]) == {
                "what": "blocks",
                "held": "4",
                "needed": "1",
                "limit": "4",
            }
        assert running.node.quotas.refusals == 8


async def test_a_prompt_in_delta_form_counts_with_what_it_goes_on_from() -> None:
    async with (
        running_node(max_blocks_per_client=5) as running,
        AsyncNodeClient(running.address) as client,
    ):
        sequence = await client.acquire(WHO, [1] * 64)
        prefix = (await client.commit(sequence.id, 64)).prefix
        await client.release(sequence.id)
        with pytest.raises(PromptTooLarge, match="one client may hold 5 blocks, 6 are needed"):
            await client.acquire(WHO, [2] * 17, after=prefix)
        await client.acquire(WHO, [1] * 16)
        with pytest.raises(ClientLimit, match="holds 1 blocks and needs 5 more"):
            await client.acquire(WHO, [2], after=prefix)
        assert running.node.quotas.refusals == 2


async def test_a_prefix_that_is_not_known_is_said_to_be_so_however_long_it_is_said_to_be() -> None:
    async with (
        running_node(max_blocks_per_client=4) as running,
        AsyncNodeClient(running.address) as client,
    ):
        with pytest.raises(UnknownPrefix):
            await client.acquire(WHO, [2], after=Prefix(b"h" * 16, 2**32 - 16))
        assert running.node.quotas.refusals == 0


@pytest.mark.parametrize("limit", [62, 63, 64, 65])
async def test_the_limit_comes_before_the_pool_on_either_side_of_it(limit: int) -> None:
    """F075: 63 blocks are asked for when 64, then 1 can be had."""
    async with (
        running_node(max_blocks_per_client=limit) as running,
        AsyncNodeClient(running.address) as client,
        client.session() as session,
        client.session() as other,
    ):
        outcomes: list[str] = []
        for number, where in ((1, session), (2, session), (1, other)):
            (result,) = await where.step([Acquire(number, WHO, [number] * (63 * 16))])
            error = isinstance(result, PrefixCacheError)
            outcomes.append(result.reason if error else "opened")  # type: ignore[union-attr]
    expected = {
        62: ["PROMPT_TOO_LARGE", "PROMPT_TOO_LARGE", "PROMPT_TOO_LARGE"],
        63: ["opened", "CLIENT_LIMIT", "POOL_EXHAUSTED"],
        64: ["opened", "CLIENT_LIMIT", "POOL_EXHAUSTED"],
        65: ["opened", "CLIENT_LIMIT", "POOL_EXHAUSTED"],
    }
    assert outcomes == expected[limit]


async def test_unary_callers_of_one_host_share_a_limit_over_all_their_connections() -> None:
    async with (
        running_node(max_sequences_per_client=2) as running,
        AsyncNodeClient(running.address) as one,
        AsyncNodeClient(running.address) as other,
    ):
        first = await one.acquire(WHO, [1])
        await other.fork(first.id)
        for client in (one, other):
            with pytest.raises(ClientLimit, match="holds 2 sequences and needs 1 more"):
                await client.acquire(WHO, [1])
        await other.release(first.id)
        await one.acquire(WHO, [1])


async def test_an_expired_lease_gives_its_share_back() -> None:
    async with (
        running_node(max_sequences_per_client=1, lease_s=0.01) as running,
        AsyncNodeClient(running.address) as client,
    ):
        for _ in range(3):
            await client.acquire(WHO, [1])
            while (await client.stats()).live_sequences:
                pass
        assert running.node.leases_expired == 3


async def test_blocks_count_while_they_are_loaded_for_a_sequence_that_has_ended() -> None:
    async with (
        tiers(max_blocks_per_client=8) as running,
        AsyncNodeClient(running.address) as client,
    ):
        async with client.session() as session:
            offloads = await evict_the_chat(session)
            await session.step([Acknowledge(offloads.copy_id)])
        loading = await client.acquire(WHO, CHAT)
        assert len(loading.copies.loads) == 6
        await client.release(loading.id)
        with pytest.raises(ClientLimit, match="holds 6 blocks and needs 3 more"):
            await client.acquire(WHO, [1] * 12)
        await client.acknowledge(loading.copies.copy_id)
        whole = await client.acquire(WHO, CHAT)
        await client.acknowledge(whole.copies.copy_id)
        await client.release(whole.id)
        await client.acquire(WHO, [1] * 32)
        assert running.node.quotas.refusals == 1


async def test_loads_that_are_never_acknowledged_count_until_they_are_withdrawn() -> None:
    async with (
        tiers(max_blocks_per_client=16, copy_timeout_s=1.0) as running,
        AsyncNodeClient(running.address) as client,
    ):
        async with client.session() as session:
            offloads = await evict_the_chat(session)
            await session.step([Acknowledge(offloads.copy_id)])
        loading = await client.acquire(WHO, CHAT)
        fork = await client.fork(loading.id)
        await client.release(loading.id)
        await client.release(fork)
        with pytest.raises(ClientLimit, match="holds 6 blocks and needs 11 more"):
            await client.acquire(WHO, [1] * 44)
        await eventually(lambda: running.node.withdrawn_copies["timeout"] == 1)
        whole = await client.acquire(WHO, [1] * 32)
        with pytest.raises(ClientLimit, match="holds 8 blocks and needs 9 more"):
            await client.append(whole.id, [1] * 36)


async def test_a_step_of_too_many_operations_ends_the_session_and_none_is_carried_out() -> None:
    async with (
        running_node(max_operations_per_step=2) as running,
        AsyncNodeClient(running.address) as client,
        client.session() as session,
    ):
        assert len(await session.step([Acquire(1, WHO, [1]), Acquire(2, WHO, [2])])) == 2
        with pytest.raises(MessageTooLarge, match="step 2 has 3 operations, expected at most 2"):
            await session.step([Acquire(number, WHO, [1]) for number in (3, 4, 5)])
        stats = await client.stats()
        assert (stats.query_tokens, stats.live_sequences) == (2, 0)


def test_what_hosts_hold_is_forgotten_with_their_last_sequence() -> None:
    holdings = Holdings()
    held = holdings.of_peer("ipv4:10.0.0.1:5000")
    assert holdings.of_peer("ipv4:10.0.0.1:6000") is held
    assert holdings.of_peer("ipv6:%5B::1%5D:6000") is not held
    assert holdings.of_peer("unix:") is holdings.of_peer("unix:/run/node.sock")
    del held
    assert not holdings._by_host


@pytest.mark.parametrize("name", ["max_sequences_per_client", "max_blocks_per_client"])
def test_a_negative_limit_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match=f"{name} is -1, expected 0 to"):
        NodeConfig(**{name: -1})  # type: ignore[arg-type]


@pytest.mark.parametrize(("num_tokens", "sequences"), [(1, 65_536), (64_000, 4_194)])
async def test_without_settings_forks_are_limited_by_number_and_by_the_size_of_their_tables(
    num_tokens: int, sequences: int
) -> None:
    node = Node(NodeConfig())
    own, holding = NumberedSequences(node), Holding()
    prompt = node_pb2.Prompt(tokens=bytes(4 * num_tokens))
    own.acquire(0, node_pb2.AcquireRequest(prompt=prompt), holding)
    own.commit(0, num_tokens)
    for number in range(1, sequences):
        own.fork(number, 0, holding)
    with pytest.raises(ClientLimit):
        own.fork(sequences, 0, holding)
    assert node.cache.stats().live_sequences == sequences
