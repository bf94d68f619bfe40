"""Which blocks a simulated cache holds, and what one in place of all would hold."""

from __future__ import annotations

from prefix_cache.replay.policies.block_lru import BlockLru, pooled_hit_rate
from prefix_cache.replay.policies.trace import TraceRequest


def blocks(names: str) -> tuple[bytes, ...]:
    return tuple(name.encode() for name in names)


def test_only_leading_blocks_are_a_hit() -> None:
    cache = BlockLru(10)
    cache.use(blocks("abc"))

    assert [cache.held_blocks(blocks(names)) for names in ("abc", "abx", "xbc", "", "abcd")] == [
        3,
        2,
        0,
        0,
        3,
    ]


def test_the_last_block_of_the_prompt_used_least_recently_goes_first() -> None:
    cache = BlockLru(4)
    cache.use(blocks("abc"))
    cache.use(blocks("xy"))
    assert [cache.held_blocks(blocks(names)) for names in ("abc", "xy")] == [2, 2]

    cache.use(blocks("a"))
    cache.use(blocks("z"))
    assert [cache.held_blocks(blocks(names)) for names in ("abc", "xy", "z")] == [1, 2, 1]


def test_a_prompt_larger_than_the_cache_leaves_its_head() -> None:
    cache = BlockLru(2)
    cache.use(blocks("abc"))

    assert cache.held_blocks(blocks("abc")) == 2


def test_the_pooled_hit_rate_counts_blocks_of_all_requests() -> None:
    trace = [
        TraceRequest(0.0, 1, 1, blocks(names), "") for names in ("abc", "abcd", "xy", "abz", "")
    ]

    assert pooled_hit_rate(trace, 100) == 5 / 12
    assert pooled_hit_rate(trace, 3) == 4 / 12
    assert pooled_hit_rate([], 3) == 0
