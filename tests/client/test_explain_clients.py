"""Both clients explain a prompt with the values of the index."""

from __future__ import annotations

from typing import Any

import pytest

from prefix_cache import BlockCache, Identity, errors
from prefix_cache.index import Explanation, Reason, ReasonKind
from tests.node.nodes import RunningNode

WHO = Identity("m")


async def serve(client: Any, tokens: list[int], who: Identity = WHO) -> None:
    sequence = await client.acquire(who, tokens)
    await client.commit(sequence.id, len(tokens))
    await client.release(sequence.id)


async def test_the_answer_is_that_of_the_index(client: Any, running: RunningNode) -> None:
    await serve(client, list(range(64)))
    asked = [*range(20), 0, *range(21, 90)]
    keys = [(70, None, None)]
    explained = await client.explain(WHO, asked, keys)
    assert explained == Explanation(
        16,
        (
            Reason(ReasonKind.CACHED, 0, 16),
            Reason(
                ReasonKind.DIVERGED,
                16,
                64,
                position=20,
                prompt_token=0,
                cached_token=20,
                agrees_from=21,
            ),
            Reason(ReasonKind.EXTRA_KEY, 64, 80),
            Reason(ReasonKind.PARTIAL_BLOCK, 80, 90),
        ),
    )
    cache: BlockCache = running.node.cache
    assert explained == cache.explain(WHO, asked, keys)


async def test_numbers_that_are_zero_stay_numbers(client: Any) -> None:
    await serve(client, [0] * 1000)
    await serve(client, [1] * 1000)  # 64 blocks hold 62 of each but not both
    (_, evicted, _) = (await client.explain(WHO, [0] * 1000)).reasons
    assert (evicted.kind, evicted.releases_ago) == (ReasonKind.EVICTED, 1)
    (never_seen, _) = (await client.explain(WHO, [9] * 17)).reasons
    assert never_seen == Reason(ReasonKind.NEVER_SEEN, 0, 16)
    (diverged, _) = (await client.explain(WHO, [1] * 15 + [0] * 2)).reasons
    assert diverged.prompt_token == 0


async def test_another_identity_is_named_by_its_fields(client: Any) -> None:
    await serve(client, [1] * 32, Identity("m", adapter="a", revision="r"))
    (reason, _) = (await client.explain(WHO, [1] * 33)).reasons
    assert reason.fields == ("revision", "adapter")


async def test_across_salts_needs_a_node_that_allows_it(client: Any) -> None:
    with pytest.raises(errors.PermissionDenied, match="across salts") as denied:
        await client.explain(WHO, [1], across_salts=True)
    assert isinstance(denied.value, PermissionError)
