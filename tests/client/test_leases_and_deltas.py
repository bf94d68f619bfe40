"""Both clients ask for leases, and go on after a committed prefix."""

from __future__ import annotations

from typing import Any

import pytest

from prefix_cache import Identity, errors
from prefix_cache.client import Acquire, Commit, Release
from prefix_cache.index import Prefix
from tests.node.nodes import RunningNode

WHO = Identity("m")


async def test_the_lease_granted_is_in_the_answer(client: Any) -> None:
    assert (await client.acquire(WHO, [1])).lease_s == 60.0
    sequence = await client.acquire(WHO, [1], lease_s=2.5)
    assert sequence.lease_s == 2.5
    assert (await client.acquire(WHO, [1], lease_s=10_000)).lease_s == 600.0
    async with client.session() as session:
        (acquired,) = await session.step([Acquire(1, WHO, [1])])
        assert acquired.lease_s is None


async def test_a_fork_has_a_lease_of_its_own(client: Any, running: RunningNode) -> None:
    sequence = await client.acquire(WHO, [1])
    fork = await client.fork(sequence.id, lease_s=0.01)
    while running.node.cache.stats().live_sequences == 2:
        await client.stats()
    with pytest.raises(errors.LeaseExpired, match=r"its lease of 0\.01 s ran out") as expired:
        await client.append(fork, [1])
    assert expired.value.details == {"sequence_id": str(fork), "lease_s": "0.01"}
    await client.release(sequence.id)


@pytest.mark.parametrize(
    "lease_s", [0, -1.0, 0.000_9, 1e12, float("nan"), float("inf"), "60", True]
)
async def test_a_lease_that_is_no_time_never_leaves(
    client: Any, running: RunningNode, lease_s: Any
) -> None:
    with pytest.raises(
        errors.InvalidArgument, match=r"lease_s is .*, expected seconds from 0\.001 to"
    ):
        await client.acquire(WHO, [1], lease_s=lease_s)
    assert running.node.cache.stats().live_sequences == 0


async def test_a_prompt_goes_on_after_a_committed_prefix(client: Any) -> None:
    sequence = await client.acquire(WHO, [1] * 40)
    prefix = (await client.commit(sequence.id, 40)).prefix
    assert prefix.num_tokens == 32
    await client.release(sequence.id)
    rest = [1] * 8 + [2] * 10
    assert (await client.match(WHO, rest, after=prefix)).num_cached_tokens == 32
    following = await client.acquire(WHO, rest, after=prefix)
    assert (following.num_cached_tokens, following.num_tokens) == (32, 50)
    async with client.session() as session:
        acquired, committed, _ = await session.step(
            [Acquire(1, WHO, rest, after=prefix), Commit(1, 50), Release(1)]
        )
        assert (acquired.num_cached_tokens, committed.prefix.num_tokens) == (32, 48)
        (whole,) = await session.step([Acquire(2, WHO, [1] * 40 + [2] * 10)])
        assert whole.num_cached_tokens == 48


async def test_a_prefix_that_is_not_known_is_said_to_be_so(client: Any) -> None:
    unknown = Prefix(b"h" * 16, 32)
    with pytest.raises(errors.UnknownPrefix, match="send the prompt in full"):
        await client.acquire(WHO, [1], after=unknown)
    with pytest.raises(errors.UnknownPrefix):
        await client.match(WHO, [1], after=unknown)
    async with client.session() as session:
        (refused,) = await session.step([Acquire(1, WHO, [1], after=unknown)])
        assert type(refused) is errors.UnknownPrefix
    with pytest.raises(errors.InvalidArgument, match="num_tokens is -16"):
        await client.acquire(WHO, [1], after=Prefix(b"h" * 16, -16))
