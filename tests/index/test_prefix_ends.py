"""Prompts in delta form: what comes after a committed prefix, instead of the whole."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, multiple, precondition, rule, run_state_machine_as_test

from prefix_cache import BlockCache, Identity
from prefix_cache.errors import ReleasedSequence, UnknownPrefix
from prefix_cache.index import Prefix
from prefix_cache.index.cache import MAX_ENDS
from prefix_cache.index.place import Place
from prefix_cache.index.prefix_ends import PrefixEnds
from prefix_cache.index.run import Run

from .machine import CacheMachine, Pair, endings, opened
from .records import ExtraKey
from .stories import WHO, hit, serve, table
from .test_machine_finds_faults import UNTIL_FOUND
from .test_state_machine import THOROUGH
from .tier_machine import TierMachine


def small_cache(num_blocks: int = 64) -> BlockCache:
    return BlockCache(num_blocks=num_blocks, block_size=4)


def turn(cache: BlockCache, tokens: list[int], extra_keys: Iterable[ExtraKey] = ()) -> Prefix:
    """Play a whole request; returns the end that the next turn goes on from."""
    sequence = cache.acquire(WHO, tokens, extra_keys)
    cache.commit(sequence, sequence.num_tokens)
    prefix = sequence.findable_prefix
    cache.release(sequence)
    assert prefix is not None
    return prefix


def known(cache: BlockCache, prefix: Prefix, who: Identity = WHO) -> bool:
    try:
        cache.match(who, [0], after=prefix)
    except UnknownPrefix:
        return False
    return True


def test_the_next_turn_sends_only_what_is_new() -> None:
    cache = small_cache()
    end = turn(cache, [1] * 10)
    assert end.num_tokens == 8

    whole = cache.match(WHO, [1] * 10 + [2] * 7)
    delta = cache.match(WHO, [1] * 2 + [2] * 7, after=end)
    assert delta.num_cached_tokens == whole.num_cached_tokens == 8
    assert table(delta.block_ids) == table(whole.block_ids)

    sequence = cache.acquire(WHO, [1] * 2 + [2] * 7, after=end)
    assert (sequence.num_tokens, sequence.num_cached_tokens) == (17, 8)
    assert len(sequence.block_table) == 5
    cache.commit(sequence, 17)
    cache.release(sequence)
    assert hit(cache, [1] * 10 + [2] * 7) == 16
    assert cache.stats().query_tokens == 10 + 17


def test_a_live_sequence_that_nothing_can_be_found_of_has_no_prefix() -> None:
    cache = small_cache()
    sequence = cache.acquire(WHO, [1] * 8)
    assert sequence.findable_prefix is None
    cache.commit(sequence, 3)
    assert sequence.findable_prefix is None
    cache.commit(sequence, 4)
    assert sequence.findable_prefix is not None
    assert sequence.findable_prefix.num_tokens == 4
    cache.release(sequence)
    with pytest.raises(ReleasedSequence):
        _ = sequence.findable_prefix


@pytest.mark.parametrize("new_tokens", [1, 3, 4, 5, 9])
def test_an_old_end_in_the_middle_of_a_longer_run(new_tokens: int) -> None:
    """The conversation went on since, so the end has blocks behind it in the same run."""
    cache = small_cache()
    end = turn(cache, [1] * 8)
    turn(cache, [1] * 16)
    delta = cache.match(WHO, [1] * new_tokens, after=end)
    assert delta.num_cached_tokens == hit(cache, [1] * (8 + new_tokens))


def test_an_end_is_found_after_its_run_was_split_and_merged_again() -> None:
    cache = small_cache()
    short = turn(cache, [1] * 8)
    long = turn(cache, [1] * 24)
    branch = cache.acquire(WHO, [1] * 12 + [2] * 4)  # splits the run between the two
    assert known(cache, short)
    assert known(cache, long)
    cache.release(branch)  # merges it again
    assert cache.match(WHO, [1] * 8, after=short).num_cached_tokens == 12
    assert cache.match(WHO, [3], after=long).num_cached_tokens == 24


def test_a_second_sequence_that_ends_at_the_same_place_makes_nothing_ambiguous() -> None:
    """The first ended with the run that was to become the tail, the second with the head."""
    cache = small_cache()
    end = turn(cache, [1] * 8)
    turn(cache, [1] * 16)
    again = cache.acquire(WHO, [1] * 8 + [2] * 4)  # pins the head alone
    assert again.findable_prefix == end
    cache.release(again)
    assert known(cache, end)
    assert turn(cache, [1] * 8 + [3] * 3) == end
    assert known(cache, end)


def test_an_end_that_was_evicted_is_not_known_until_it_is_cached_again() -> None:
    cache = small_cache(num_blocks=4)
    end = turn(cache, [1] * 16)
    cache.release(cache.acquire(WHO, [2] * 8))
    with pytest.raises(UnknownPrefix) as refused:
        cache.acquire(WHO, [3], after=end)
    assert refused.value.details == {"num_tokens": 16, "block_hash": end.block_hash.hex()}
    assert turn(cache, [1] * 16) == end
    assert known(cache, end)


def test_other_tokens_where_the_end_was_are_not_taken_for_it() -> None:
    cache = small_cache(num_blocks=4)
    end = turn(cache, [1] * 16)
    cache.release(cache.acquire(WHO, [2] * 8))
    turn(cache, [1] * 8 + [3] * 8)  # the same run grows again, with other tokens
    assert not known(cache, end)


def test_an_end_is_known_to_its_identity_alone() -> None:
    cache = small_cache()
    end = turn(cache, [1] * 8)
    serve(cache, [1] * 8, Identity("m", salt="s"))
    assert not known(cache, end, Identity("m", salt="s"))
    assert not known(cache, end, Identity("never heard of"))


@pytest.mark.parametrize(
    "prefix", [Prefix(b"", 8), Prefix(b"\0" * 16, 8), Prefix(b"", 0), Prefix(b"", -4)]
)
def test_a_prefix_that_nobody_ended_with_is_refused(prefix: Prefix) -> None:
    cache = small_cache()
    turn(cache, [1] * 8)
    before = cache.stats()
    with pytest.raises(UnknownPrefix):
        cache.acquire(WHO, [1], after=prefix)
    assert cache.stats() == before


@pytest.mark.parametrize("num_tokens", [0, 4, 11, 13, 16])
def test_a_hash_with_another_length_is_refused(num_tokens: int) -> None:
    cache = small_cache()
    end = turn(cache, [1] * 12)
    assert end.num_tokens == 12
    assert not known(cache, Prefix(end.block_hash, num_tokens))


def test_extra_keys_go_by_the_positions_of_the_whole_prompt() -> None:
    cache = small_cache()
    keys: list[ExtraKey] = [(6, 7, b"first picture"), (9, 11, b"second picture")]
    end = turn(cache, [1] * 8, keys[:1])
    turn(cache, [1] * 16, keys)
    assert cache.match(WHO, [1] * 9, keys, after=end).num_cached_tokens == 16
    assert cache.match(WHO, [1] * 9, keys[:1], after=end).num_cached_tokens == 8


def test_a_key_that_forbids_reuse_inside_the_prefix_forbids_the_delta() -> None:
    cache = small_cache()
    end = turn(cache, [1] * 8)
    before = cache.stats()
    for at in (0, 7):
        with pytest.raises(UnknownPrefix):
            cache.acquire(WHO, [1] * 8, [(at, None, None)], after=end)
    assert cache.stats() == before
    assert cache.match(WHO, [1] * 8, [(8, None, None)], after=end).num_cached_tokens == 8


def test_a_reset_forgets_every_end() -> None:
    cache = small_cache()
    end = turn(cache, [1] * 8)
    cache.reset()
    assert not known(cache, end)


def test_ends_are_bounded_and_the_latest_stay() -> None:
    """F112: a burst of one-turn sessions forgets old ends, not the conversation that goes on."""
    cache = BlockCache(num_blocks=2 * MAX_ENDS, block_size=1)
    first = turn(cache, [0, 0])
    for session in range(1, MAX_ENDS - 1):
        turn(cache, [session])
        if session == MAX_ENDS // 2:
            home = turn(cache, [0, 0, 7])
    assert known(cache, first)
    turn(cache, [MAX_ENDS])
    assert not known(cache, first)
    assert known(cache, home)


def test_two_places_under_one_hash_are_ambiguous_and_refused() -> None:
    """With a hash that collides a delta may be refused; the full form stays exact."""
    cache = BlockCache(num_blocks=64, block_size=4, hash_function=lambda *_: bytes(8))
    one = turn(cache, [1] * 8)
    other = turn(cache, [2] * 8)
    assert one == other
    assert not known(cache, one)
    assert hit(cache, [1] * 9) == hit(cache, [2] * 9) == 8


class DeltaMachine(CacheMachine):
    """Turns that go on from the ends of released sequences, among everything else.

    A delta is taken by its hash alone, so this holds for hashes that do not collide.
    """

    def __init__(self) -> None:
        super().__init__()
        # Where sequences ended, and how many blocks had been evicted by then.
        self.ends: dict[Pair, tuple[Prefix, int]] = {}

    def release_pair(self, pair: Pair) -> None:
        prefix = pair.real.findable_prefix
        if prefix is not None:
            self.ends[pair] = prefix, self.model.evicted_blocks
        super().release_pair(pair)

    @precondition(lambda self: len(self.model.cached) > 6)
    @rule()
    def reset(self) -> None:
        super().reset()
        if not self.live:
            self.ends.clear()

    @rule(target=CacheMachine.sequences, pair=CacheMachine.ended, word=endings.filter(bool))
    def acquire_after(self, pair: Pair, word: str) -> Any:
        if pair not in self.ends or not self.knows(pair, self.spell(word)):
            return multiple()
        prefix, _ = self.ends[pair]
        last = pair.model
        tokens = last.tokens + self.spell(word)
        both = self.both(
            lambda side, _: (
                side.acquire(last.who, tokens[prefix.num_tokens :], last.extra_keys, after=prefix)
                if side is self.cache
                else side.acquire(last.who, tokens, last.extra_keys)
            )
        )
        return opened(self.now_acquired(*both) if both else None)

    @invariant()
    def ends_are_where_they_were(self) -> None:
        for pair in self.ends:
            self.knows(pair, [0])
            self.knows(pair, [1] * self.block_size)

    def knows(self, pair: Pair, more: list[int]) -> bool:
        """Whether a delta is taken; if so it finds what the full form does.

        It must be taken while nothing was evicted.
        """
        prefix, evicted_blocks = self.ends[pair]
        last = pair.model
        tokens = last.tokens + more
        delta = tokens[prefix.num_tokens :]
        try:
            found = self.cache.match(last.who, delta, last.extra_keys, after=prefix)
        except UnknownPrefix:
            assert self.model.evicted_blocks > evicted_blocks
            return False
        expected = self.model.match(last.who, tokens, last.extra_keys)
        assert found.num_cached_tokens == expected.num_cached_tokens
        assert list(found.block_ids) == expected.block_ids
        return True


class TierDeltaMachine(DeltaMachine, TierMachine):
    """Histories lie on the host, too."""


def test_a_delta_equals_the_full_form_in_random_histories() -> None:
    run_state_machine_as_test(DeltaMachine, settings=settings(THOROUGH, max_examples=80))


def test_a_delta_equals_the_full_form_on_both_tiers() -> None:
    run_state_machine_as_test(TierDeltaMachine, settings=settings(THOROUGH, max_examples=80))


def test_the_machine_notices_an_end_that_is_taken_without_its_hash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Other tokens stand where the prefix ended, after an eviction."""

    def place(ends: PrefixEnds, run: Run, key: Any) -> Place | None:
        return ends._tree.on_path(run, key[2])

    monkeypatch.setattr(PrefixEnds, "_place", place)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(DeltaMachine, settings=UNTIL_FOUND)


def test_the_machine_notices_ends_that_are_lost_without_an_eviction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only ends of runs that were not split since."""

    def place(ends: PrefixEnds, run: Run, key: Any) -> Place | None:
        found = ends._tree.on_path(run, key[2])
        return found if found and found.run is run else None

    monkeypatch.setattr(PrefixEnds, "_place", place)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(DeltaMachine, settings=UNTIL_FOUND)
