"""Nobody is served KV that belongs to another identity, picture or prompt."""

from __future__ import annotations

from dataclasses import fields
from itertools import combinations

import pytest
from xxhash import xxh3_128_digest

from prefix_cache import BlockCache, Identity
from prefix_cache.errors import InvalidIdentity, SequencesLive
from prefix_cache.index.events import Event

from .stories import WHO, chain_hashes, hit, serve, stored_hashes, table

PROMPT = list(range(100, 164))  # four blocks
NEXT_TURN = [*PROMPT, 1]


def test_adapters_do_not_share_blocks() -> None:
    """F014."""
    cache = BlockCache(num_blocks=64)
    serve(cache, PROMPT, Identity(model="m", adapter="a"))

    assert hit(cache, NEXT_TURN, Identity(model="m")) == 0
    assert hit(cache, NEXT_TURN, Identity(model="m", adapter="b")) == 0
    assert hit(cache, NEXT_TURN, Identity(model="m", adapter="a")) == 64


def test_hashes_do_not_depend_on_the_order_in_which_adapters_came() -> None:
    """F015."""
    first_a, first_b = (load_adapters(order) for order in ("ab", "ba"))

    assert len(first_a) == len(first_b) == 8
    assert first_a[4:] == first_b[:4]


def load_adapters(order: str) -> list[bytes]:
    events: list[Event] = []
    cache = BlockCache(num_blocks=64, on_event=events.append)
    for adapter in order:
        serve(cache, PROMPT, Identity(model="m", adapter=adapter))
    return stored_hashes(events)


@pytest.mark.parametrize(
    "changed",
    [
        Identity(model="m", revision="2"),
        Identity(model="m", adapter="a", adapter_revision="2"),
        Identity(model="m", adapter="a", kv_dtype="fp8_e4m3"),
    ],
)
def test_changed_weights_are_another_identity(changed: Identity) -> None:
    """F016."""
    cache = BlockCache(num_blocks=64)
    serve(cache, PROMPT, Identity(model="m"))
    serve(cache, PROMPT, Identity(model="m", adapter="a"))

    assert hit(cache, NEXT_TURN, changed) == 0


def test_reset_refuses_while_a_request_runs_and_then_takes_effect() -> None:
    """F016."""
    cache = BlockCache(num_blocks=64)
    serve(cache, PROMPT)
    running = cache.acquire(WHO, NEXT_TURN)

    with pytest.raises(SequencesLive, match="1"):
        cache.reset()
    assert hit(cache, NEXT_TURN) == 64

    cache.release(running)
    cache.reset()
    assert hit(cache, NEXT_TURN) == 0
    assert cache.stats().free == 64


def test_one_value_in_two_fields_gives_two_hashes() -> None:
    """F017."""
    plain = dict.fromkeys((field.name for field in fields(Identity)), "")
    first_hashes = [chain_hashes(PROMPT, Identity(**plain))[0]]
    first_hashes += [chain_hashes(PROMPT, Identity(**{**plain, name: "X"}))[0] for name in plain]

    assert len(set(first_hashes)) == 7


def test_text_moved_between_fields_gives_another_hash() -> None:
    """F017."""
    identities = [
        Identity(model="abc", revision=""),
        Identity(model="ab", revision="c"),
        Identity(model="a", revision="bc"),
        Identity(model="", revision="abc"),
        Identity(model="abc\0", revision=""),
    ]
    for one, other in combinations(identities, 2):
        assert chain_hashes(PROMPT, one)[0] != chain_hashes(PROMPT, other)[0]


def test_block_size_is_part_of_the_identity() -> None:
    parents: list[bytes] = []

    def spy(parent: bytes, block: bytes, extra: bytes) -> bytes:
        if len(block) in (8 * 4, 16 * 4) and block[:4] == b"\x64\0\0\0":
            parents.append(parent)
        return xxh3_128_digest(parent + block + extra)

    for block_size in (8, 16):
        serve(BlockCache(64, block_size, hash_function=spy), PROMPT[:block_size])

    assert len(set(parents)) == 2


def test_salts_keep_the_same_prompt_apart_from_lookup_to_block_table() -> None:
    """F019: the index's part."""
    cache = BlockCache(num_blocks=64)
    s1, s2 = Identity(model="m", salt="s1"), Identity(model="m", salt="s2")
    serve(cache, PROMPT, s1)

    assert hit(cache, NEXT_TURN, s2) == 0
    other = cache.acquire(s2, NEXT_TURN)
    assert other.num_cached_tokens == 0
    cache.commit(other, 65)
    same = cache.acquire(s1, NEXT_TURN)
    assert same.num_cached_tokens == 64
    assert not set(table(same.block_table)) & set(table(other.block_table))


def test_pictures_with_equal_placeholders_do_not_share_blocks() -> None:
    """F020."""
    cache = BlockCache(num_blocks=64)
    placeholders = [9] * 32
    prompt = placeholders + PROMPT[:33]
    a, b = [(0, 32, b"digest a")], [(0, 32, b"digest b")]

    serve(cache, prompt, extra_keys=a)
    assert hit(cache, prompt, extra_keys=b) == 0
    assert hit(cache, prompt) == 0
    serve(cache, prompt, extra_keys=b)
    assert hit(cache, prompt, extra_keys=a) == 64


def test_a_picture_without_digest_is_never_reused() -> None:
    """F020."""
    cache = BlockCache(num_blocks=64)
    text_then_picture = PROMPT[:16] + [9] * 32 + PROMPT[:17]
    unknown = [(16, 48, None)]

    serve(cache, text_then_picture, extra_keys=unknown)

    assert hit(cache, text_then_picture, extra_keys=unknown) == 16  # the text before it
    assert hit(cache, text_then_picture) == 16
    assert cache.stats().cached == 1
    assert cache.stats().free == 63


def test_equal_hashes_are_told_apart_by_comparing_tokens() -> None:
    """F022."""
    cache = BlockCache(64, hash_function=lambda _parent, _block, _extra: bytes(8))
    a, b = [1] * 65, [2] * 65
    late = [1] * 32 + [2] * 33  # leaves a in the middle

    serve(cache, a)
    assert hit(cache, b) == 0
    assert hit(cache, late) == 32

    tables = [serve(cache, prompt) for prompt in (b, late)]
    assert not set(tables[0][:4]) & set(tables[1][:4])
    for prompt, block_table in zip((b, late), tables, strict=True):
        assert hit(cache, prompt) == 64
        assert table(cache.match(WHO, prompt).block_ids) == block_table[:4]


def test_equal_hashes_are_told_apart_by_comparing_extra_keys() -> None:
    """F022."""
    cache = BlockCache(64, hash_function=lambda _parent, _block, _extra: bytes(8))
    a, b, late = [(0, 64, b"a")], [(0, 64, b"b")], [(0, 32, b"a"), (32, 64, b"b")]

    serve(cache, PROMPT, extra_keys=a)
    assert hit(cache, NEXT_TURN, extra_keys=b) == 0
    assert hit(cache, NEXT_TURN, extra_keys=late) == 32
    serve(cache, PROMPT, extra_keys=b)
    assert hit(cache, NEXT_TURN, extra_keys=b) == 64


def test_an_identity_field_is_a_string() -> None:
    with pytest.raises(InvalidIdentity, match=r"salt.*7"):
        Identity(model="m", salt=7)  # type: ignore[arg-type]
