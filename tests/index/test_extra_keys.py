"""Extra keys: what besides tokens tells blocks apart, range by range."""

from __future__ import annotations

import numpy as np
import pytest

from prefix_cache import BlockCache
from prefix_cache.errors import InvalidExtraKeys

from .records import ExtraKey
from .stories import WHO, chain_hashes, hit, serve

PROMPT = list(range(65))
Keys = list[ExtraKey]


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ([(0, None, b"k")], [(0, 64, b"k")]),
        ([(0, None, b"k")], [(0, 1000, b"k")]),
        ([(3, 20, b"k"), (5, 9, b"l")], [(5, 9, b"l"), (3, 20, b"k")]),
        ([(3, 20, b"k")], [(3, 20, b"k"), (3, 20, b"k")]),
        ([(3, 20, b"k")], [(3, 16, b"k"), (16, 20, b"k")]),
        ([(64, None, b"k")], []),
    ],
    ids=[
        "open end",
        "end beyond",
        "order",
        "said twice",
        "cut at a block",
        "touches no full block",
    ],
)
def test_the_same_keys_said_otherwise_hit(one: Keys, same: Keys) -> None:
    cache = BlockCache(num_blocks=64)
    serve(cache, PROMPT, extra_keys=one)

    assert hit(cache, PROMPT, extra_keys=same) == 64
    assert chain_hashes(PROMPT, extra_keys=one) == chain_hashes(PROMPT, extra_keys=same)


@pytest.mark.parametrize(
    ("one", "other", "hit_tokens"),
    [
        ([(0, 16, b"k")], [(0, 16, b"l")], 0),
        ([(0, 16, b"k")], [], 0),
        ([(0, 16, b"k")], [(0, 15, b"k")], 0),
        ([(0, 16, b"k")], [(1, 16, b"k")], 0),
        ([(0, 16, b"kl")], [(0, 16, b"k"), (0, 16, b"l")], 0),
        ([(0, 16, b"")], [], 0),
        ([(0, None, b"k")], [(0, 40, b"k")], 32),
        ([(31, 33, b"k")], [(32, 33, b"k")], 16),
        ([(63, 64, b"k")], [(63, 64, b"l")], 48),
    ],
)
def test_blocks_are_shared_up_to_the_first_that_has_other_keys(
    one: Keys, other: Keys, hit_tokens: int
) -> None:
    cache = BlockCache(num_blocks=64)
    serve(cache, PROMPT, extra_keys=one)

    assert hit(cache, PROMPT, extra_keys=other) == hit_tokens
    same_blocks = hit_tokens // 16
    hashes, others = chain_hashes(PROMPT, extra_keys=one), chain_hashes(PROMPT, extra_keys=other)
    assert hashes[:same_blocks] == others[:same_blocks]
    assert not set(hashes[same_blocks:]) & set(others[same_blocks:])


def test_a_range_may_reach_into_tokens_that_are_appended_later() -> None:
    cache = BlockCache(num_blocks=64)
    keys: Keys = [(20, 40, b"k")]
    sequence = cache.acquire(WHO, PROMPT[:10], keys)
    cache.append(sequence, PROMPT[10:])
    cache.commit(sequence, 65)
    cache.release(sequence)

    assert hit(cache, PROMPT, extra_keys=keys) == 64
    assert hit(cache, PROMPT) == 16


def test_an_unknown_key_ends_reuse_at_its_block_whatever_follows() -> None:
    cache = BlockCache(num_blocks=64)
    serve(cache, PROMPT)

    assert hit(cache, PROMPT, extra_keys=[(40, 41, None)]) == 32
    assert hit(cache, PROMPT, extra_keys=[(63, None, None)]) == 48
    assert hit(cache, PROMPT, extra_keys=[(64, None, None)]) == 64
    assert hit(cache, PROMPT, extra_keys=[(50, 51, None), (20, 21, None)]) == 16


def test_blocks_behind_an_unknown_key_stay_private_when_committed() -> None:
    cache = BlockCache(num_blocks=8)
    sequence = cache.acquire(WHO, PROMPT, [(40, 41, None)])

    cache.commit(sequence, 65)

    assert sequence.num_committed_tokens == 65
    assert (cache.stats().cached, cache.stats().private) == (2, 3)
    cache.release(sequence)
    assert (cache.stats().cached, cache.stats().free) == (2, 6)


@pytest.mark.parametrize(
    "wrong",
    [
        (-1, 4, b"k"),
        (4, 4, b"k"),
        (4, 3, b"k"),
        ("0", 4, b"k"),
        (0, 4.0, b"k"),
        (0, 4, "k"),
        (0, 4, 7),
        (None, 4, b"k"),
        (0, 4),
        (0, 4, b"k", b"l"),
        7,
        None,
    ],
    ids=repr,
)
def test_a_bad_extra_key_is_named_and_changes_nothing(wrong: ExtraKey) -> None:
    cache = BlockCache(num_blocks=8)
    for call in (cache.match, cache.acquire):
        with pytest.raises(InvalidExtraKeys) as refused:
            call(WHO, PROMPT, [(0, None, b"good"), wrong])
        assert repr(wrong) in str(refused.value)
    assert cache.stats().free == 8
    assert cache.stats().query_tokens == 0


@pytest.mark.parametrize("wrong", [None, 7], ids=repr)
def test_extra_keys_that_are_no_list_are_refused(wrong: Keys) -> None:
    with pytest.raises(InvalidExtraKeys):
        BlockCache(num_blocks=8).match(WHO, PROMPT, wrong)


def test_more_keys_over_one_block_than_allowed_are_refused() -> None:
    """Each goes into the hash of each block it touches: 65 over all would stall who serves."""
    cache = BlockCache(num_blocks=8, block_size=4)
    many = [(0, None, b"%d" % number) for number in range(65)]
    with pytest.raises(InvalidExtraKeys, match="65 extra keys touch block 0, expected at most 64"):
        cache.acquire(WHO, list(range(9)), many)
    assert cache.acquire(WHO, list(range(9)), many[:64]).num_cached_tokens == 0


def test_a_thousand_keys_one_after_another_are_kept_apart() -> None:
    cache = BlockCache(num_blocks=600, block_size=4)
    tokens = [7] * 2001
    keys = [(place, place + 1, b"%d" % place) for place in range(0, 2000, 2)]
    seq = cache.acquire(WHO, tokens, keys)
    cache.commit(seq, 2001)
    cache.release(seq)
    assert cache.match(WHO, tokens, reversed(keys)).num_cached_tokens == 2000
    other = [*keys[:700], (1400, 1401, b"another"), *keys[701:]]
    assert cache.match(WHO, tokens, other).num_cached_tokens == 1400
    assert cache.match(WHO, tokens, keys[:999]).num_cached_tokens == 1996


def test_what_is_no_list_of_keys_is_refused_whatever_it_compares_to() -> None:
    cache = BlockCache(num_blocks=8, block_size=4)
    for bad in (np.array([1, 2]), 5, [(0, 4)], "key"):
        with pytest.raises(InvalidExtraKeys):
            cache.acquire(WHO, [1], bad)  # type: ignore[arg-type]
