"""``explain`` says for every token of a prompt why it hits or misses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prefix_cache import BlockCache, Identity
from prefix_cache.errors import InvalidExtraKeys, InvalidIdentity, InvalidTokens
from prefix_cache.index import Explanation, Reason, ReasonKind

from .records import ExtraKey
from .stories import WHO, hit, serve

(
    CACHED,
    ON_HOST,
    NEVER_SEEN,
    DIVERGED,
    EVICTED,
    OTHER_IDENTITY,
    EXTRA_KEY,
    UNCOMMITTED,
    PARTIAL,
    LAST,
) = ReasonKind


def small_cache(num_blocks: int = 64) -> BlockCache:
    """Blocks of four tokens, so that a story can be told in few."""
    return BlockCache(num_blocks=num_blocks, block_size=4)


def reasons(
    cache: BlockCache,
    tokens: list[int],
    who: Identity = WHO,
    extra_keys: tuple[ExtraKey, ...] = (),
    *,
    across_salts: bool = False,
) -> list[Reason]:
    """Why; and it must have changed nothing, and agree with ``match``."""
    before = cache.stats()
    explained = cache.explain(who, tokens, extra_keys, across_salts=across_salts)
    assert cache.stats() == before
    cache.audit()
    assert explained.num_cached_tokens == hit(cache, tokens, who, extra_keys)
    return list(explained.reasons)


def test_what_is_cached_and_what_is_new_and_what_fills_no_block() -> None:
    cache = small_cache()
    serve(cache, [1] * 8)
    assert reasons(cache, [1] * 8 + [2] * 6) == [
        Reason(CACHED, 0, 8),
        Reason(NEVER_SEEN, 8, 12),
        Reason(PARTIAL, 12, 14),
    ]


def test_an_empty_cache_has_seen_nothing() -> None:
    assert reasons(small_cache(), [1] * 9) == [Reason(NEVER_SEEN, 0, 8), Reason(PARTIAL, 8, 9)]
    assert reasons(small_cache(), [1] * 3) == [Reason(PARTIAL, 0, 3)]


def test_a_prompt_unlike_all_that_is_cached_was_never_seen() -> None:
    cache = small_cache()
    serve(cache, [1] * 8)
    assert reasons(cache, [2] * 8) == [Reason(NEVER_SEEN, 0, 8)]


def test_a_prompt_cached_whole_computes_its_last_block_for_the_last_token() -> None:
    cache = small_cache()
    serve(cache, [1] * 12)
    assert reasons(cache, [1] * 12) == [Reason(CACHED, 0, 8), Reason(LAST, 8, 12)]
    assert reasons(cache, [1] * 4) == [Reason(LAST, 0, 4)]
    assert reasons(cache, [1] * 11) == [Reason(CACHED, 0, 8), Reason(PARTIAL, 8, 11)]


def test_a_prompt_that_leaves_what_is_cached_names_the_token() -> None:
    cache = small_cache()
    serve(cache, list(range(12)))
    prompt = [*range(9), 77, 78, 79, 80]
    assert reasons(cache, prompt) == [
        Reason(CACHED, 0, 8),
        Reason(DIVERGED, 8, 12, position=9, prompt_token=77, cached_token=9),
        Reason(PARTIAL, 12, 13),
    ]


def test_where_several_go_on_from_the_same_prefix_the_most_alike_is_named() -> None:
    cache = small_cache()
    for ending in ([5, 5, 5, 5], [6, 7, 8, 9], [6, 1, 1, 1]):
        serve(cache, [1, 1, 1, 1, *ending])
    assert reasons(cache, [1, 1, 1, 1, 6, 7, 0, 0])[1] == Reason(
        DIVERGED, 4, 8, position=6, prompt_token=0, cached_token=8
    )


def test_a_volatile_span_ends_where_a_whole_block_agrees_again() -> None:
    """F052: a time in the system prompt; its tokens 5 and 7 differ, 6 does not."""
    cache = small_cache()
    serve(cache, list(range(40)))
    prompt = list(range(40))
    prompt[5], prompt[7] = 1005, 1007
    assert reasons(cache, prompt) == [
        Reason(CACHED, 0, 4),
        Reason(DIVERGED, 4, 40, position=5, prompt_token=1005, cached_token=5, agrees_from=8),
    ]


def test_one_volatile_token_early_costs_all_the_stable_ones_after_it() -> None:
    """F052: 2,000 stable tokens come after it, in blocks of 16."""
    cache = BlockCache(num_blocks=256)
    prompt = list(range(2006))
    serve(cache, prompt)
    prompt[5] = 9999
    assert reasons(cache, prompt) == [
        Reason(DIVERGED, 0, 2000, position=5, prompt_token=9999, cached_token=5, agrees_from=6),
        Reason(PARTIAL, 2000, 2006),
    ]


def test_of_prompts_alike_up_to_the_volatile_token_the_one_alike_after_it_is_named() -> None:
    """F052: every prompt begins with the same header, so the first tokens do not tell."""
    cache = small_cache()
    serve(cache, [1, 2, *[9] * 22])
    serve(cache, [1, 2, 100, *range(3, 24)])
    serve(cache, [1, 2, *[8] * 22])
    assert reasons(cache, [1, 2, 101, *range(3, 24)]) == [
        Reason(DIVERGED, 0, 24, position=2, prompt_token=101, cached_token=100, agrees_from=3)
    ]


def test_a_volatile_first_token_is_named_too() -> None:
    cache = small_cache()
    serve(cache, [100, *range(1, 12)])
    assert reasons(cache, [101, *range(1, 12)]) == [
        Reason(DIVERGED, 0, 12, position=0, prompt_token=101, cached_token=100, agrees_from=1)
    ]


def test_tokens_put_in_at_the_head_are_a_difference_in_the_first_block() -> None:
    """F051: an option adds seven tokens at position 2, and everything after them moves."""
    cache = BlockCache(num_blocks=64)
    conversation = list(range(160))
    serve(cache, conversation)
    prompt = conversation[:2] + [7000 + i for i in range(7)] + conversation[2:]
    assert reasons(cache, prompt) == [
        Reason(DIVERGED, 0, 160, position=2, prompt_token=7000, cached_token=2),
        Reason(PARTIAL, 160, 167),
    ]


def test_a_template_that_rewrites_history_diverges_where_the_reasoning_stood() -> None:
    """F050: turn 1 generated a reasoning span, and turn 2 leaves it out."""
    cache = BlockCache(num_blocks=64)
    question, reasoning, answer = list(range(100)), list(range(200, 230)), list(range(300, 350))
    serve(cache, question + reasoning + answer)
    turn_2 = question + answer + list(range(400, 420))
    assert reasons(cache, turn_2) == [
        Reason(CACHED, 0, 96),
        Reason(DIVERGED, 96, 160, position=100, prompt_token=300, cached_token=200),
        Reason(PARTIAL, 160, 170),
    ]


def test_generated_tokens_are_found_like_those_of_the_prompt() -> None:
    """F054: a prompt of 100, an output of 50, then a prompt of 200 that extends both."""
    cache = BlockCache(num_blocks=64)
    sequence = cache.acquire(WHO, list(range(100)))
    cache.commit(sequence, 100)
    for token in range(100, 150):
        cache.append(sequence, [token])
        cache.commit(sequence, token + 1)
    cache.release(sequence)
    assert reasons(cache, list(range(200))) == [
        Reason(CACHED, 0, 144),
        Reason(NEVER_SEEN, 144, 192),
        Reason(PARTIAL, 192, 200),
    ]


# --- evicted --------------------------------------------------------------------------------------


def test_what_was_evicted_says_how_many_releases_ago() -> None:
    cache = small_cache(num_blocks=4)
    serve(cache, [1] * 12)
    sequence = cache.acquire(WHO, [2] * 12)  # evicts two of the three
    assert reasons(cache, [1] * 16) == [
        Reason(CACHED, 0, 4),
        Reason(EVICTED, 4, 12, releases_ago=0),
        Reason(NEVER_SEEN, 12, 16),
    ]
    for _ in range(3):
        cache.release(cache.fork(sequence))
    assert reasons(cache, [1] * 12)[1] == Reason(EVICTED, 4, 12, releases_ago=3)


def test_what_was_evicted_block_by_block_is_one_range() -> None:
    cache = small_cache(num_blocks=4)
    serve(cache, [1] * 16)
    sequence = cache.acquire(WHO, [2] * 4)
    for _ in range(2):
        cache.append(sequence, [2] * 4)
    assert reasons(cache, [1] * 16) == [
        Reason(CACHED, 0, 4),
        Reason(EVICTED, 4, 16, releases_ago=0),
    ]


def test_a_prompt_that_leaves_what_was_evicted_is_evicted_up_to_there() -> None:
    cache = small_cache(num_blocks=4)
    serve(cache, [1] * 16)
    cache.release(cache.acquire(WHO, [2] * 16))
    assert reasons(cache, [1] * 8 + [3] * 8) == [
        Reason(EVICTED, 0, 8, releases_ago=1),
        Reason(NEVER_SEEN, 8, 16),
    ]


def test_an_evicted_system_prompt_is_evicted_for_every_conversation() -> None:
    cache = small_cache(num_blocks=50)
    system = list(range(80))
    serve(cache, [*system, *[7] * 20])
    cache.release(cache.acquire(replace(WHO, model="o"), [9] * 200))
    assert reasons(cache, [*system, *[8] * 20]) == [
        Reason(EVICTED, 0, 80, releases_ago=1),
        Reason(NEVER_SEEN, 80, 100),
    ]
    assert reasons(cache, [*system[:40], 1]) == [
        Reason(EVICTED, 0, 40, releases_ago=1),
        Reason(PARTIAL, 40, 41),
    ]


def test_the_rest_of_what_was_evicted_together_stays_evicted_when_its_head_comes_back() -> None:
    cache = small_cache(num_blocks=12)
    prompt = list(range(40))
    serve(cache, prompt)
    cache.release(cache.acquire(WHO, [50] * 48))
    head = cache.acquire(WHO, prompt[:24])
    assert reasons(cache, prompt) == [
        Reason(UNCOMMITTED, 0, 24),
        Reason(EVICTED, 24, 40, releases_ago=1),
    ]
    cache.commit(head, 24)
    assert reasons(cache, prompt) == [
        Reason(CACHED, 0, 24),
        Reason(EVICTED, 24, 40, releases_ago=1),
    ]


def test_what_is_cached_again_is_no_longer_evicted() -> None:
    cache = small_cache(num_blocks=4)
    serve(cache, [1] * 12)
    serve(cache, [2] * 12)
    serve(cache, [1] * 12)
    assert reasons(cache, [1] * 13) == [Reason(CACHED, 0, 12), Reason(PARTIAL, 12, 13)]


def test_a_reset_forgets_what_was_evicted() -> None:
    cache = small_cache(num_blocks=4)
    serve(cache, [1] * 12)
    serve(cache, [2] * 12)
    cache.reset()
    assert reasons(cache, [1] * 12) == [Reason(NEVER_SEEN, 0, 12)]


# --- other identity -------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ["model", "revision", "adapter", "adapter_revision", "kv_dtype"])
def test_what_another_identity_has_names_the_field(field: str) -> None:
    cache = small_cache()
    serve(cache, [1] * 8, replace(WHO, **{field: "x"}))
    assert reasons(cache, [1] * 14) == [
        Reason(OTHER_IDENTITY, 0, 8, fields=(field,)),
        Reason(NEVER_SEEN, 8, 12),
        Reason(PARTIAL, 12, 14),
    ]


def test_of_several_identities_the_one_that_has_most_is_named() -> None:
    cache = small_cache()
    serve(cache, [1] * 4)
    serve(cache, [1] * 8, replace(WHO, adapter="a"))
    serve(cache, [1] * 16, replace(WHO, adapter="b", kv_dtype="fp8_e4m3"))
    assert reasons(cache, [1] * 16) == [
        Reason(CACHED, 0, 4),
        Reason(OTHER_IDENTITY, 4, 16, fields=("adapter", "kv_dtype")),
    ]


def test_another_salt_is_never_spoken_of() -> None:
    cache = small_cache()
    other = replace(WHO, salt="their secret")
    serve(cache, [1] * 8, other)
    serve(cache, [1] * 8, replace(other, adapter="a"))
    live = cache.acquire(other, [2] * 8)
    assert reasons(cache, [1] * 8) == [Reason(NEVER_SEEN, 0, 8)]
    assert reasons(cache, [2] * 8) == [Reason(NEVER_SEEN, 0, 8)]
    assert reasons(cache, [1] * 4 + [9] * 4) == [Reason(NEVER_SEEN, 0, 8)]
    cache.release(live)


def test_an_eviction_under_another_salt_is_never_spoken_of() -> None:
    cache = small_cache(num_blocks=4)
    serve(cache, [1] * 12, replace(WHO, salt="their secret"))
    serve(cache, [2] * 16)
    assert reasons(cache, [1] * 12, across_salts=True) == [Reason(NEVER_SEEN, 0, 12)]


def test_across_salts_the_salt_is_a_field_like_the_others() -> None:
    cache = small_cache()
    serve(cache, [1] * 8, replace(WHO, salt="s", adapter="a"))
    assert reasons(cache, [1] * 8, across_salts=True) == [
        Reason(OTHER_IDENTITY, 0, 8, fields=("adapter", "salt"))
    ]


def test_of_equal_salt_another_identity_is_spoken_of() -> None:
    cache = small_cache()
    salted = replace(WHO, salt="s")
    serve(cache, [1] * 8, replace(salted, revision="r"))
    assert reasons(cache, [1] * 8, salted) == [Reason(OTHER_IDENTITY, 0, 8, fields=("revision",))]


# --- extra keys -----------------------------------------------------------------------------------


@pytest.mark.parametrize("asked", [(), ((1, 3, b"other picture"),), ((1, 2, b"picture"),)])
def test_tokens_cached_with_other_extra_keys(asked: tuple[ExtraKey, ...]) -> None:
    cache = small_cache()
    serve(cache, [1] * 8, extra_keys=((1, 3, b"picture"),))
    assert reasons(cache, [1] * 8 + [2] * 4, extra_keys=asked) == [
        Reason(EXTRA_KEY, 0, 8),
        Reason(NEVER_SEEN, 8, 12),
    ]


def test_from_a_key_that_is_not_known_nothing_is_reused() -> None:
    cache = small_cache()
    serve(cache, [1] * 16)
    assert reasons(cache, [1] * 18, extra_keys=((9, 10, None),)) == [
        Reason(CACHED, 0, 8),
        Reason(EXTRA_KEY, 8, 16),
        Reason(PARTIAL, 16, 18),
    ]


def test_before_a_key_that_is_not_known_the_other_reasons_hold() -> None:
    cache = small_cache()
    serve(cache, [1] * 4)
    assert reasons(cache, [1] * 4 + [2] * 8, extra_keys=((9, None, None),)) == [
        Reason(CACHED, 0, 4),
        Reason(NEVER_SEEN, 4, 8),
        Reason(EXTRA_KEY, 8, 12),
    ]


# --- uncommitted ----------------------------------------------------------------------------------


def test_what_a_live_sequence_is_computing_is_not_committed() -> None:
    cache = small_cache()
    sequence = cache.acquire(WHO, [1] * 14)
    assert reasons(cache, [1] * 14) == [Reason(UNCOMMITTED, 0, 12), Reason(PARTIAL, 12, 14)]
    cache.commit(sequence, 7)
    assert reasons(cache, [1] * 10 + [2] * 6) == [
        Reason(CACHED, 0, 4),
        Reason(UNCOMMITTED, 4, 8),
        Reason(NEVER_SEEN, 8, 16),
    ]
    cache.release(sequence)
    assert reasons(cache, [1] * 8) == [Reason(CACHED, 0, 4), Reason(NEVER_SEEN, 4, 8)]


def test_what_another_committed_first_does_not_hide_who_computes_the_rest() -> None:
    cache = small_cache()
    cache.acquire(WHO, [1] * 12)  # found nothing when it came
    serve(cache, [1] * 4)
    assert reasons(cache, [1] * 12) == [Reason(CACHED, 0, 4), Reason(UNCOMMITTED, 4, 12)]


def test_what_is_computed_with_other_extra_keys_is_not_the_same() -> None:
    cache = small_cache()
    cache.acquire(WHO, [1] * 12, ((5, 6, b"picture"),))
    assert reasons(cache, [1] * 12) == [Reason(UNCOMMITTED, 0, 4), Reason(NEVER_SEEN, 4, 12)]


def test_what_will_never_be_findable_is_not_called_uncommitted() -> None:
    """A live sequence over content without a key: no later prompt can find its blocks."""
    cache = small_cache()
    cache.acquire(WHO, [1] * 12, ((0, None, None),))
    assert reasons(cache, [1] * 12) == [Reason(NEVER_SEEN, 0, 12)]
    cache.acquire(WHO, [1] * 12, ((4, None, None),))
    assert reasons(cache, [1] * 12) == [Reason(UNCOMMITTED, 0, 4), Reason(NEVER_SEEN, 4, 12)]


# --- in general -----------------------------------------------------------------------------------


def test_bad_input_is_refused_as_by_match() -> None:
    cache = small_cache()
    with pytest.raises(InvalidTokens):
        cache.explain(WHO, [])
    with pytest.raises(InvalidExtraKeys):
        cache.explain(WHO, [1], [(3, 3, b"k")])
    with pytest.raises(InvalidIdentity):
        cache.explain("m", [1])  # type: ignore[arg-type]


def test_of_neighbours_without_number_the_latest_are_looked_at() -> None:
    """The work of a diagnosis is bounded, and what was sent last is what one asks about."""
    cache = small_cache(num_blocks=1500)
    for first in range(1500):
        serve(cache, [first, first, first, first])
    assert reasons(cache, [1499, 1499, 7, 7]) == [
        Reason(DIVERGED, 0, 4, position=2, prompt_token=7, cached_token=1499)
    ]
    assert reasons(cache, [0, 0, 7, 7]) == [Reason(NEVER_SEEN, 0, 4)]


REQUESTS = st.tuples(
    st.lists(st.integers(0, 1), min_size=1, max_size=20),
    st.sampled_from([WHO, Identity("m", adapter="a"), Identity("m", salt="s")]),
    st.sampled_from([(), ((1, 3, b"k"),), ((5, None, b"k"),), ((6, 9, None),)]),
    st.sampled_from(["acquire", "half", "serve", "serve"]),
)


@settings(max_examples=300, deadline=None)
@given(history=st.lists(REQUESTS, max_size=12), asked=REQUESTS, across_salts=st.booleans())
def test_every_token_has_one_reason_and_the_hit_is_that_of_match(
    history: list[tuple[list[int], Identity, tuple[ExtraKey, ...], str]],
    asked: tuple[list[int], Identity, tuple[ExtraKey, ...], str],
    across_salts: bool,
) -> None:
    cache = BlockCache(num_blocks=100, block_size=2)
    for tokens, who, extra_keys, what in history:
        if what == "serve":
            serve(cache, tokens, who, extra_keys)
            continue
        sequence = cache.acquire(who, tokens, extra_keys)
        if what == "half":
            cache.commit(sequence, len(tokens) // 2)

    tokens, who, extra_keys, _ = asked
    found = reasons(cache, tokens, who, extra_keys, across_salts=across_salts)

    assert [token for r in found for token in range(r.start, r.end)] == list(range(len(tokens)))
    assert all(r.start < r.end for r in found)
    for r in found:
        assert (r.position is not None) == (r.kind is DIVERGED)
        assert (r.releases_ago is not None) == (r.kind is EVICTED)
        assert bool(r.fields) == (r.kind is OTHER_IDENTITY)
        assert across_salts or "salt" not in r.fields
        if r.position is not None:
            assert r.start <= r.position < r.end
            assert r.prompt_token == tokens[r.position] != r.cached_token


def test_an_explanation_is_a_value() -> None:
    cache = small_cache()
    serve(cache, [1] * 8)
    assert cache.explain(WHO, [1] * 9) == Explanation(
        8, (Reason(CACHED, 0, 8), Reason(PARTIAL, 8, 9))
    )


def on_two_tiers(*, acknowledged: bool) -> BlockCache:
    """Of a history of three blocks the last two went to the host, or are on their way."""
    cache = BlockCache(num_blocks=3, block_size=4, host_blocks=8)
    serve(cache, [1] * 12)
    other = cache.acquire(WHO, [2] * 8)
    if acknowledged:
        cache.acknowledge(other.copies.copy_id)
    return cache


def test_what_is_on_the_host_hits_by_a_load() -> None:
    cache = on_two_tiers(acknowledged=True)
    assert reasons(cache, [1] * 14) == [
        Reason(CACHED, 0, 4),
        Reason(ON_HOST, 4, 12),
        Reason(PARTIAL, 12, 14),
    ]
    assert reasons(cache, [1] * 12) == [
        Reason(CACHED, 0, 4),
        Reason(ON_HOST, 4, 8),
        Reason(LAST, 8, 12),
    ]
    assert reasons(cache, [1] * 8) == [Reason(CACHED, 0, 4), Reason(LAST, 4, 8)]


def test_what_is_on_its_way_to_the_host_is_not_committed_yet() -> None:
    cache = on_two_tiers(acknowledged=False)
    assert reasons(cache, [1] * 14) == [
        Reason(CACHED, 0, 4),
        Reason(UNCOMMITTED, 4, 12),
        Reason(PARTIAL, 12, 14),
    ]


def test_what_the_host_evicted_too_was_evicted() -> None:
    cache = BlockCache(num_blocks=3, block_size=4, host_blocks=1)
    serve(cache, [1] * 12)
    other = cache.acquire(WHO, [2] * 8)
    cache.acknowledge(other.copies.copy_id)
    assert reasons(cache, [1] * 12) == [
        Reason(CACHED, 0, 4),
        Reason(ON_HOST, 4, 8),
        Reason(EVICTED, 8, 12, releases_ago=0),
    ]
