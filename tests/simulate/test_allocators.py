"""What every allocator promises the simulation, and what sets them apart."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest

from prefix_cache.errors import PromptTooLarge
from prefix_cache.simulate.allocators import Allocator, Paged, Usage
from prefix_cache.simulate.request import Branch, Request
from tests.simulate.loads import NAMES, allocator, request, token_ids

every = pytest.mark.parametrize("name", NAMES)
contiguous = pytest.mark.parametrize("name", NAMES[:3])
paged = pytest.mark.parametrize("name", NAMES[3:])


def opened(on: Allocator, *arguments: Any, **more: Any) -> Any:
    holding = on.open(request(*arguments, **more), 0)
    assert holding is not None
    return holding


def total(usage: Usage) -> int:
    *parts, _unshared = astuple(usage)
    return sum(parts)


@every
def test_all_slots_are_accounted_for_while_a_request_grows(name: str) -> None:
    on = allocator(name, 256)
    holding = opened(on, 10, 7, width=2)
    for fed in range(1, 7):
        assert on.grow(holding, 1)
        assert holding.num_fed == fed
        usage = on.usage()
        assert total(usage) == on.num_slots
        assert min(astuple(usage)) >= 0
    # The last token of an answer is never fed: nothing of what was given is reserved any more.
    assert on.usage().reserved == 0


@every
def test_what_was_taken_comes_back(name: str) -> None:
    on = allocator(name, 256)
    empty = on.usage()
    for holding in [opened(on, 10, 7, width=width, first=100 * width) for width in (1, 2, 1)]:
        on.grow(holding, 3)
        on.close(holding)
    assert on.usage() == empty
    if isinstance(on, Paged):
        on.cache.audit()
        assert on.cache.stats().live_sequences == 0


@every
def test_there_is_none_where_memory_is_short_and_nothing_changes_then(name: str) -> None:
    on = allocator(name, 128)
    opened(on, 62, 2)
    opened(on, 30, 2, first=100)
    before = on.usage()
    assert on.open(request(60, 4, first=500), 0) is None
    assert on.usage() == before


@every
def test_what_never_fits_is_an_error(name: str) -> None:
    with pytest.raises(PromptTooLarge, match=r"the pool has 8|there are 32"):
        allocator(name, 32).open(request(60, 4), 0)


@every
def test_a_request_may_go_on_where_it_was_preempted(name: str) -> None:
    on = allocator(name, 256)
    branches = (Branch(2, 0, 1), Branch(4, 1, 0))
    for width, branching in ((1, ()), (2, branches)):
        one = opened(on, 10, 9, width=width, branches=branching)
        for _ in range(5):
            on.grow(one, 1)
        held = one.num_slots
        on.close(one)
        again = on.open(request(10, 9, width=width, branches=branching), 5)
        assert again is not None
        assert (again.num_fed, again.num_slots) == (5, held)
        on.close(again)


@paged
def test_steps_are_sure_until_the_first_sequence_finds_no_block(name: str) -> None:
    """24 blocks of 4: the second sequence's twelfth is the last."""
    on = allocator(name, 96)
    first, second = opened(on, 13, 60), opened(on, 16, 60, first=500)
    assert on.sure_steps([first, second]) == 32
    assert on.grow(first, 32)
    assert on.grow(second, 32)
    assert on.usage().free == 0
    assert on.sure_steps([first, second]) == 0
    assert on.grow(first, 1)
    assert not on.grow(second, 1)


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        # 10 tokens are there, 16 will be; 17 is what the answer of 7 is guessed to: 10 + 8.
        ("reserve_max", Usage(10, 6, 48, 0, 192, 64)),
        ("pow2", Usage(10, 6, 2, 14, 224, 32)),
        ("oracle", Usage(10, 6, 0, 0, 240, 16)),
        # Three blocks of 4, of which the last has room for two more.
        ("paged", Usage(10, 2, 0, 0, 244, 12)),
    ],
)
def test_a_prompt_of_ten_tokens_and_an_answer_of_seven(name: str, usage: Usage) -> None:
    on = allocator(name, 256)
    opened(on, 10, 7)
    assert on.usage() == usage


@contiguous
def test_contiguous_memory_is_copied_for_each_sequence_and_each_branch(name: str) -> None:
    on = allocator(name, 1_024)
    holding = opened(on, 10, 7, width=3, branches=(Branch(2, 0, 1),))
    assert on.copied_tokens == 20  # the prompt, to the places of the two others
    assert on.sure_steps([holding]) == 2
    on.grow(holding, 2)
    assert on.sure_steps([holding]) == 0
    on.grow(holding, 1)
    assert on.copied_tokens == 20 + 12
    assert on.usage().tokens == 3 * 13


@paged
def test_samples_share_full_blocks_of_their_prompt_and_copy_the_partial_one(name: str) -> None:
    """10 tokens in blocks of 4: two full ones are shared, the third is copied twice."""
    on = allocator(name, 256)
    holding = opened(on, 10, 7, width=3)
    assert holding.num_slots == 3 * 4
    on.grow(holding, 1)
    assert holding.num_slots == 2 * 4 + 3 * 4
    assert on.copied_tokens == 2 * 4
    usage = on.usage()
    assert (usage.tokens, usage.unshared) == (8 + 3 * 3, 3 * 3 * 4)


@paged
def test_a_beam_that_is_dropped_gives_back_what_only_it_held(name: str) -> None:
    """Beam 1 goes on from beam 0: of its two blocks after the prompt one is left, a copy."""
    on = allocator(name, 256)
    holding = opened(on, 8, 12, width=2, branches=(Branch(6, 1, 0),))
    for _ in range(6):
        on.grow(holding, 1)
    assert holding.num_slots == 2 * 4 + 2 * 8
    assert on.sure_steps([holding]) == 0
    on.grow(holding, 1)
    assert holding.num_slots == 2 * 4 + 4 + 2 * 4


def test_only_caching_finds_the_prefix_of_another_request() -> None:
    on = {name: allocator(name, 256) for name in ("paged", "paged_caching")}
    for one in on.values():
        one.close(opened(one, 21, 5))
    cached = {name: opened(one, 30, 5).num_cached_tokens for name, one in on.items()}
    assert cached == {"paged": 0, "paged_caching": 20}


def test_paged_memory_that_is_cached_but_not_in_use_counts_as_free() -> None:
    on = Paged(256, 4, caching=True)
    on.close(opened(on, 21, 5))
    assert on.cache.stats().cached == 5
    assert on.usage() == Usage(0, 0, 0, 0, 256, 0)


def test_a_step_that_runs_out_of_blocks_can_be_taken_again() -> None:
    """Two sequences need a block each, and one is left."""
    on = Paged(5 * 4, 4)
    holding = on.open(request(4, 9, width=2), 0)
    other = on.open(request(8, 2, first=500), 0)
    assert holding is not None
    assert other is not None
    assert on.grow(holding, 1)
    assert holding.num_slots == 3 * 4
    assert on.grow(holding, 3)
    assert not on.grow(holding, 1)
    assert holding.num_fed == 4
    on.close(other)
    assert on.grow(holding, 1)
    assert [len(one.block_table) for one in holding.sequences] == [3, 3]
    assert [one.num_tokens for one in holding.sequences] == [9, 9]
    on.cache.audit()


def test_an_answer_is_cached_like_a_prompt() -> None:
    """The next turn begins with 8 tokens of prompt and the 8 of the answer that were fed."""
    on = Paged(256, 4, caching=True)
    holding = opened(on, 8, 9)
    on.grow(holding, 8)
    on.close(holding)
    history = token_ids(8) + token_ids(9, 1_000)
    turn = on.open(Request(0.0, history + token_ids(5, 2_000), token_ids(3)), 0)
    assert turn is not None
    assert turn.num_cached_tokens == 16
