"""Paged attention equals dense attention, wherever the blocks lie."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prefix_cache.errors import InvalidArgument
from prefix_cache.kv import KVLayout, KVPool, PagedBatch, SequenceSlice, paged_attention

from .dense import Story, make_story, write_all

# What computing in the dtype costs: the reference reads the same values in float64.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 3e-3}


@dataclass(frozen=True)
class Case:
    dtype: str
    block_size: int
    kv_heads: int
    group: int
    head_dim: int
    slices: list[tuple[int, int]]
    seed: int

    def stories(self) -> list[Story]:
        heads = (self.group * self.kv_heads, self.kv_heads, self.head_dim)
        generator = torch.Generator().manual_seed(self.seed)
        return [
            make_story(first, count, heads, self.layout.torch_dtype, generator)
            for first, count in self.slices
        ]

    @property
    def layout(self) -> KVLayout:
        return KVLayout(2, self.kv_heads, self.head_dim, self.block_size, self.dtype)

    def tables(self, seed: int) -> list[list[int]]:
        """Blocks for each slice, anywhere in a pool of three more than are needed."""
        counts = [-(-(first + count) // self.block_size) for first, count in self.slices]
        generator = torch.Generator().manual_seed(seed)
        blocks = torch.randperm(sum(counts) + 3, generator=generator).tolist()
        return [[blocks.pop() for _ in range(count)] for count in counts]


CASES = st.builds(
    Case,
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    block_size=st.sampled_from([1, 4, 16]),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 4),
    head_dim=st.sampled_from([4, 16, 24, 64]),
    slices=st.lists(
        st.tuples(st.integers(0, 70), st.one_of(st.just(1), st.integers(1, 40))),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 2**31),
)


def full_pool(case: Case, tables: list[list[int]]) -> KVPool:
    """A pool in which others have left large values everywhere."""
    pool = KVPool(case.layout, sum(map(len, tables)) + 3, compute_dtype=case.layout.torch_dtype)
    slots = torch.arange(pool.num_blocks * case.block_size)
    left = torch.full((len(slots), case.kv_heads, case.head_dim), 1000.0)
    for layer in range(2):
        pool.write(layer, slots, left, -left)
    return pool


def attend(case: Case, stories: list[Story], tables: list[list[int]]) -> Tensor:
    pool = full_pool(case, tables)
    batch = write_all(pool, 1, stories, tables)
    return paged_attention(torch.cat([story.query for story in stories]), pool, 1, batch)


@settings(max_examples=150, deadline=None)
@given(case=CASES)
def test_paged_attention_equals_dense_attention(case: Case) -> None:
    stories = case.stories()

    got = attend(case, stories, case.tables(case.seed))

    exact = torch.cat([story.exact() for story in stories])
    assert got.dtype == case.layout.torch_dtype
    tolerance = TOLERANCE[got.dtype]
    torch.testing.assert_close(got.double(), exact, rtol=tolerance, atol=tolerance)


@settings(max_examples=50, deadline=None)
@given(case=CASES)
def test_where_the_blocks_lie_does_not_matter_to_the_last_bit(case: Case) -> None:
    stories = case.stories()
    one, other = (attend(case, stories, case.tables(seed)) for seed in (1, 2))
    assert torch.equal(one, other)


@pytest.mark.parametrize("wrong", [[4, 1, 2, 0], [0, 1, 5, 4], [0, 1, 2, 3]])
def test_a_wrong_block_table_gives_another_answer(wrong: list[int]) -> None:
    """The control of the tests above: they would notice.

    First and last block swapped, a block of another sequence, and one that nobody wrote to.
    """
    case = Case("float32", 16, 2, 2, 16, [(60, 1), (10, 1)], seed=7)
    stories, tables = case.stories(), [[0, 1, 2, 4], [5]]
    pool = full_pool(case, tables)
    write_all(pool, 1, stories, tables)
    story = stories[0]

    for table, differs in (tables[0], False), (wrong, True):
        batch = PagedBatch.of([SequenceSlice(table, story.first, story.count)], 16)
        got = paged_attention(story.query, pool, 1, batch)
        assert ((got.double() - story.exact()).abs().max() > 1e-2) == differs


def test_batch_mates_do_not_matter() -> None:
    """Decodes of very different lengths, and prefills, alone and together."""
    case = Case(
        "float32", 16, 2, 3, 16, [(200, 1), (0, 1), (3, 1), (90, 1), (0, 33), (17, 20)], seed=3
    )
    stories, tables = case.stories(), case.tables(3)
    pool = full_pool(case, tables)
    together = paged_attention(
        torch.cat([story.query for story in stories]),
        pool,
        1,
        write_all(pool, 1, stories, tables),
    )

    alone = []
    for story, table in zip(stories, tables, strict=True):
        batch = PagedBatch.of([SequenceSlice(table, story.first, story.count)], 16)
        alone.append(paged_attention(story.query, pool, 1, batch))
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-5, atol=1e-5)


def test_layers_are_apart() -> None:
    case = Case("float32", 16, 1, 1, 8, [(20, 3)], seed=5)
    (story,), tables = case.stories(), case.tables(5)
    pool = full_pool(case, tables)
    batch = write_all(pool, 0, [story], tables)
    exact = story.exact()
    torch.testing.assert_close(paged_attention(story.query, pool, 0, batch).double(), exact)
    assert not torch.allclose(paged_attention(story.query, pool, 1, batch).double(), exact)


@pytest.mark.parametrize(
    ("query", "table", "block_size", "message"),
    [
        (
            torch.zeros(2, 4, 8),
            [0],
            16,
            "shape \\(2, 4, 8\\); expected \\(1, a multiple of 2 heads, 8",
        ),
        (torch.zeros(1, 3, 8), [0], 16, "shape \\(1, 3, 8\\)"),
        (torch.zeros(1, 4, 4), [0], 16, "shape \\(1, 4, 4\\)"),
        (torch.zeros(1, 4, 8).half(), [0], 16, "float16; the pool computes in torch.float32"),
        (torch.zeros(1, 4, 8), [4], 16, "block 4 is out of range; expected 0..3"),
        (torch.zeros(1, 4, 8), [0], 8, "blocks of 8 tokens, the pool of 16"),
    ],
)
def test_what_does_not_fit_is_refused(
    query: Tensor, table: list[int], block_size: int, message: str
) -> None:
    pool = KVPool(KVLayout(1, 2, 8), 4)
    batch = PagedBatch.of([SequenceSlice(table, 0, 1)], block_size)
    with pytest.raises(InvalidArgument, match=message):
        paged_attention(query, pool, 0, batch)
