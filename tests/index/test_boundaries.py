"""Arithmetic where a prompt, a block or the pool ends."""

from __future__ import annotations

import pytest

from prefix_cache import BlockCache, PoolExhausted
from prefix_cache.errors import PromptTooLarge

from .stories import WHO, hit, serve, table


def test_a_prompt_cached_in_full_leaves_its_last_block_to_compute() -> None:
    """F086: 64 tokens sent twice, then 65."""
    cache = BlockCache(num_blocks=16)
    serve(cache, [1] * 64)

    again = cache.acquire(WHO, [1] * 64)
    assert again.num_cached_tokens == 48
    cache.commit(again, 64)
    cache.release(again)
    assert cache.stats().cached == 4
    assert hit(cache, [1] * 65) == 64


@pytest.mark.parametrize(
    ("num_tokens", "hit_tokens"),
    [
        (1, 0),
        (15, 0),
        (16, 0),
        (17, 16),
        (31, 16),
        (32, 16),
        (33, 32),
        (64, 48),
        (65, 64),
        (99, 64),
    ],
)
def test_a_hit_is_of_whole_blocks_and_leaves_a_token(num_tokens: int, hit_tokens: int) -> None:
    cache = BlockCache(num_blocks=16)
    serve(cache, [1] * 64)
    assert hit(cache, [1] * num_tokens) == hit_tokens


def test_blocks_of_one_token_leave_one_token() -> None:
    cache = BlockCache(num_blocks=16, block_size=1)
    serve(cache, [1, 2, 3])
    assert hit(cache, [1, 2, 3]) == 2
    assert hit(cache, [1, 2, 3, 4]) == 3


def test_an_empty_cache_answers_with_zeros() -> None:
    """F088."""
    cache = BlockCache(num_blocks=16)
    found = cache.match(WHO, [1] * 300)
    assert (found.num_cached_tokens, table(found.block_ids)) == (0, [])
    assert cache.stats().evictable == 0
    assert cache.stats().query_tokens == 0


def test_a_short_cached_prefix_of_a_long_prompt_is_used() -> None:
    """F088: ten of three hundred tokens."""
    cache = BlockCache(num_blocks=200, block_size=2)
    serve(cache, [1] * 10)
    assert cache.acquire(WHO, [1] * 300).num_cached_tokens == 10


def test_a_turn_hits_all_full_blocks_of_the_turn_before_answer_included() -> None:
    """Ten turns: 1,200 tokens, then 200 a question, 500 an answer; 52 are lost to rounding."""
    cache = BlockCache(num_blocks=512)
    told: list[int] = []
    prefilled = []
    for turn in range(10):
        told += [turn] * (1200 if turn == 0 else 200)
        sequence = cache.acquire(WHO, told)
        prefilled.append(len(told) - sequence.num_cached_tokens)
        answer = [100 + turn] * 500
        cache.append(sequence, answer)
        told += answer
        cache.commit(sequence, len(told))
        cache.release(sequence)

    assert prefilled == [1200, 204, 200, 212, 208, 204, 200, 212, 208, 204]
    assert sum(prefilled) == 3052
    assert cache.stats().query_tokens == 43_500
    assert cache.stats().hit_tokens == 43_500 - 3052


def test_a_prompt_as_large_as_the_pool_fits_and_a_larger_one_never_will() -> None:
    cache = BlockCache(num_blocks=4)
    serve(cache, [1] * 64)
    assert hit(cache, [1] * 64) == 48

    before = cache.stats()
    with pytest.raises(PromptTooLarge) as refused:
        cache.acquire(WHO, [1] * 65)
    assert refused.value.details == {"needed": 5, "num_blocks": 4}
    assert isinstance(refused.value, PoolExhausted)
    assert cache.stats() == before


def test_a_sequence_cannot_grow_beyond_the_pool() -> None:
    cache = BlockCache(num_blocks=4)
    sequence = cache.acquire(WHO, [1] * 63)
    cache.append(sequence, [1])
    with pytest.raises(PromptTooLarge):
        cache.append(sequence, [1])
    assert sequence.num_tokens == 64
    assert table(sequence.block_table) == [0, 1, 2, 3]


def test_an_append_that_finds_no_room_changes_nothing_and_may_be_tried_again() -> None:
    cache = BlockCache(num_blocks=4)
    sequence = cache.acquire(WHO, [1] * 30)
    other = cache.acquire(WHO, [2] * 32)
    before = cache.stats()

    with pytest.raises(PoolExhausted) as refused:
        cache.append(sequence, [1] * 3)
    assert refused.value.details == {"needed": 1, "available": 0}
    assert not isinstance(refused.value, PromptTooLarge)
    assert cache.stats() == before
    assert sequence.num_tokens == 30

    cache.release(other)
    assert cache.append(sequence, [1] * 3).new_block_ids == (2,)


def test_a_copy_on_write_that_finds_no_block_changes_nothing() -> None:
    cache = BlockCache(num_blocks=2)
    parent = cache.acquire(WHO, [1] * 20)
    child = cache.fork(parent)

    with pytest.raises(PoolExhausted):
        cache.append(child, [1])
    assert table(child.block_table) == [0, 1]

    cache.release(parent)  # now it is the only owner
    assert cache.append(child, [1]).copies == ()


def test_appending_nothing_changes_nothing() -> None:
    cache = BlockCache(num_blocks=4)
    parent = cache.acquire(WHO, [1] * 20)
    child = cache.fork(parent)

    appended = cache.append(child, [])

    assert (appended.new_block_ids, appended.copies) == ((), ())
    assert cache.stats().private == 2


def test_committing_again_or_less_changes_nothing() -> None:
    cache = BlockCache(num_blocks=4)
    sequence = cache.acquire(WHO, [1] * 40)
    cache.commit(sequence, 33)
    for num_tokens in (33, 16, 0):
        cache.commit(sequence, num_tokens)
        assert sequence.num_committed_tokens == 33
    assert cache.stats().cached == 2
