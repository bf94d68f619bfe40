"""Tokens may come in several forms; all mean the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prefix_cache import BlockCache

from .stories import WHO, chain_hashes, hit, packed, serve

SMALL = list(range(65))
LARGE = [0, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1] * 7

FORMS: list[Any] = [list, tuple, packed, np.asarray]
SMALL_FORMS = [
    *FORMS,
    *(lambda tokens, kind=kind: np.array(tokens, kind) for kind in "bBhHiIlLqQ"),
    lambda tokens: np.array(tokens, ">u4"),
    lambda tokens: np.repeat(np.array(tokens, np.uint32), 2)[::2],
    lambda tokens: [np.int64(token) for token in tokens],
]
LARGE_FORMS = [*FORMS, *(lambda tokens, kind=kind: np.array(tokens, kind) for kind in "ILqQ")]


@pytest.mark.parametrize("form", SMALL_FORMS)
def test_small_ids_hash_alike_in_every_form(form: Any) -> None:
    assert chain_hashes(form(SMALL)) == chain_hashes(SMALL)
    assert len(chain_hashes(SMALL)) == 4


@pytest.mark.parametrize("form", LARGE_FORMS)
def test_ids_up_to_the_largest_hash_alike_in_every_form(form: Any) -> None:
    assert chain_hashes(form(LARGE)) == chain_hashes(LARGE)
    assert len(chain_hashes(LARGE)) == 2


@pytest.mark.parametrize("form", SMALL_FORMS)
def test_a_prompt_is_found_in_every_form(form: Any) -> None:
    cache = BlockCache(64)
    serve(cache, SMALL)
    assert hit(cache, form(SMALL)) == 64


def test_an_array_that_changes_after_the_call_does_not_change_the_sequence() -> None:
    cache = BlockCache(64)
    tokens = np.arange(64, dtype=np.uint32)
    sequence = cache.acquire(WHO, tokens)
    more = np.arange(64, 97, dtype=np.uint32)
    cache.append(sequence, more)
    tokens[:] = more[:] = 7
    cache.commit(sequence, 97)
    assert hit(cache, list(range(97))) == 96


def test_block_tables_are_int32_and_read_only() -> None:
    cache = BlockCache(64)
    serve(cache, SMALL)
    sequence = cache.acquire(WHO, SMALL)
    for blocks in (sequence.block_table, cache.match(WHO, SMALL).block_ids):
        assert blocks.dtype == np.int32
        with pytest.raises(ValueError, match="read-only"):
            blocks[0] = 7


def test_a_block_table_once_read_stays_as_it_was() -> None:
    cache = BlockCache(64)
    sequence = cache.acquire(WHO, SMALL)
    read = sequence.block_table
    cache.append(sequence, [1] * 100)
    assert len(read) == 5
    assert len(sequence.block_table) == 11
