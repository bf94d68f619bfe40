"""What is refused, by which error, naming what; and that a refused call changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from prefix_cache import BlockCache
from prefix_cache.errors import (
    CommitBeyondTokens,
    ForeignSequence,
    InvalidArgument,
    InvalidTokens,
    InvalidTokenType,
    PrefixCacheError,
    ReleasedSequence,
    UnknownSequence,
)

from .stories import WHO, hit

BAD_TOKENS: list[tuple[Any, type[PrefixCacheError], str]] = [
    ([1, -1], InvalidTokens, "-1"),
    ([1, 2**32], InvalidTokens, "4294967296"),
    ((1, 2**70), InvalidTokens, "1180591620717411303424"),
    (np.array([1, -7]), InvalidTokens, "-7"),
    (np.array([1, 2**32], np.int64), InvalidTokens, "4294967296"),
    (np.array([1, 2**63], np.uint64), InvalidTokens, "9223372036854775808"),
    (b"\1\0\0\0\2", InvalidTokens, "5"),
    ([1, 2.0], InvalidTokenType, "2.0"),
    ([1, "2"], InvalidTokenType, "'2'"),
    ([1, None], InvalidTokenType, "None"),
    ([1, [2, 3]], InvalidTokenType, r"\[2, 3\]"),
    ([np.array([1, 2])], InvalidTokenType, "array"),
    ([1, np.float32(2.5)], InvalidTokenType, "2.5"),
    (np.array([1.0, 2.0]), InvalidTokenType, "float64"),
    (np.array([[1, 2], [3, 4]]), InvalidTokenType, r"\(2, 2\)"),
    (np.array(7), InvalidTokenType, r"\(\)"),
    (np.array([True, False]), InvalidTokenType, "bool"),
    (np.array(["a"]), InvalidTokenType, "U1"),
    ("text", InvalidTokenType, "str"),
    ({1, 2}, InvalidTokenType, "set"),
    (7, InvalidTokenType, "int"),
    (None, InvalidTokenType, "NoneType"),
    (iter([1, 2]), InvalidTokenType, "iterator"),
]


@pytest.fixture
def cache() -> BlockCache:
    return BlockCache(num_blocks=8)


@pytest.mark.parametrize(
    ("tokens", "error", "named"),
    BAD_TOKENS,
    ids=[f"{type(tokens).__name__}: {named}" for tokens, _, named in BAD_TOKENS],
)
@pytest.mark.parametrize("call", ["match", "acquire", "append"])
def test_bad_tokens_are_named(
    cache: BlockCache, call: str, tokens: Any, error: type[PrefixCacheError], named: str
) -> None:
    sequence = cache.acquire(WHO, [1] * 20)
    before = cache.stats()

    target = sequence if call == "append" else WHO
    with pytest.raises(error, match=named):
        getattr(cache, call)(target, tokens)

    assert cache.stats() == before
    assert sequence.num_tokens == 20


@pytest.mark.parametrize("empty", [[], (), b"", np.array([], np.int32)], ids=repr)
def test_an_empty_prompt_is_refused(cache: BlockCache, empty: Any) -> None:
    for call in (cache.match, cache.acquire):
        with pytest.raises(InvalidTokens, match="empty"):
            call(WHO, empty)
    assert cache.stats().free == 8


def test_committing_more_than_the_sequence_has_is_refused(cache: BlockCache) -> None:
    sequence = cache.acquire(WHO, [1] * 40)
    with pytest.raises(CommitBeyondTokens, match=r"41.*40") as refused:
        cache.commit(sequence, 41)
    assert refused.value.details == {"num_tokens": 41, "sequence_tokens": 40}
    assert sequence.num_committed_tokens == 0
    assert hit(cache, [1] * 40) == 0


@pytest.mark.parametrize("num_tokens", [-1, 16.0, "16", None], ids=repr)
def test_committing_no_count_is_refused(cache: BlockCache, num_tokens: Any) -> None:
    sequence = cache.acquire(WHO, [1] * 40)
    with pytest.raises((InvalidArgument, InvalidTokenType), match=str(num_tokens)):
        cache.commit(sequence, num_tokens)
    assert sequence.num_committed_tokens == 0


CALLS: dict[str, Callable[[BlockCache, Any], object]] = {
    "append": lambda cache, sequence: cache.append(sequence, [1]),
    "append nothing": lambda cache, sequence: cache.append(sequence, []),
    "commit": lambda cache, sequence: cache.commit(sequence, 16),
    "commit nothing": lambda cache, sequence: cache.commit(sequence, 0),
    "fork": lambda cache, sequence: cache.fork(sequence),
    "release": lambda cache, sequence: cache.release(sequence),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@each_call
def test_a_released_sequence_is_refused(
    cache: BlockCache, call: Callable[[BlockCache, Any], object]
) -> None:
    sequence = cache.acquire(WHO, [1] * 40)
    cache.release(sequence)
    before = cache.stats()
    with pytest.raises(ReleasedSequence, match=str(sequence.id)):
        call(cache, sequence)
    assert cache.stats() == before
    cache.audit()


@each_call
def test_a_sequence_of_another_cache_is_refused(
    cache: BlockCache, call: Callable[[BlockCache, Any], object]
) -> None:
    other = BlockCache(num_blocks=8)
    foreign = other.acquire(WHO, [1] * 40)
    cache.acquire(WHO, [1] * 40)  # one with the same number
    before = cache.stats(), other.stats()
    with pytest.raises(ForeignSequence):
        call(cache, foreign)
    assert (cache.stats(), other.stats()) == before


@each_call
@pytest.mark.parametrize("thing", [None, 0, "1"], ids=repr)
def test_what_is_no_sequence_is_refused(
    cache: BlockCache, call: Callable[[BlockCache, Any], object], thing: Any
) -> None:
    cache.acquire(WHO, [1] * 40)
    with pytest.raises(PrefixCacheError) as refused:
        call(cache, thing)
    assert isinstance(refused.value, (UnknownSequence, TypeError))


@pytest.mark.parametrize("who", [None, "m", {"model": "m"}], ids=repr)
def test_what_is_no_identity_is_refused(cache: BlockCache, who: Any) -> None:
    for call in (cache.match, cache.acquire):
        with pytest.raises(PrefixCacheError):
            call(who, [1] * 40)
    assert cache.stats().free == 8


@pytest.mark.parametrize("name", ["num_blocks", "block_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "16", None], ids=repr)
def test_a_size_is_a_positive_integer(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=name):
        BlockCache(**{name: value})


@pytest.mark.parametrize(
    "digest", [b"short", bytes(65), "12345678", None], ids=["5", "65", "str", "None"]
)
def test_a_hash_has_eight_to_sixty_four_bytes(digest: Any) -> None:
    with pytest.raises(InvalidArgument):
        BlockCache(hash_function=lambda _parent, _block, _extra: digest)


@pytest.mark.parametrize("value", [-1, 1.5, "16", None, 2**31], ids=repr)
def test_a_number_of_slots_is_an_integer_from_zero_on(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="host_blocks"):
        BlockCache(host_blocks=value)


@pytest.mark.parametrize("copy_id", [None, -1, 1.0, "1", True, 2**64], ids=repr)
def test_a_copy_has_an_integer_for_a_number(copy_id: Any) -> None:
    cache = BlockCache(num_blocks=3, host_blocks=3)
    for tokens in ([1] * 48, [2] * 48):
        sequence = cache.acquire(WHO, tokens)
        cache.commit(sequence, 48)
        cache.release(sequence)
    assert sequence.copies.copy_id == 1
    for end in (cache.acknowledge, cache.withdraw):
        with pytest.raises(InvalidArgument, match="copy_id"):
            end(copy_id)
    assert cache.stats().pending_copies == 1
