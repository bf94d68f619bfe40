"""How the tokens of several sequences are laid out in one batch."""

from __future__ import annotations

import numpy as np
import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.kv import PagedBatch, SequenceSlice


def test_prefills_and_decodes_stand_one_after_another() -> None:
    batch = PagedBatch.of(
        [
            SequenceSlice(np.array([7, 3], np.int32), first=2, count=4),
            SequenceSlice([5], first=0, count=1),
            SequenceSlice([9, 2, 8, 6], first=9, count=1),
        ],
        block_size=4,
    )
    assert batch.positions.tolist() == [2, 3, 4, 5, 0, 9]
    assert batch.slot_mapping.tolist() == [30, 31, 12, 13, 20, 33]
    assert batch.last_rows.tolist() == [3, 4, 5]


def test_decodes_of_similar_length_attend_together_and_others_are_not_padded_to_them() -> None:
    """As gathering is what a decode costs, at most half of it is padding."""
    lengths = [1600, 16, 900, 20, 1599]
    batch = PagedBatch.of(
        [SequenceSlice(range(100), length - 1, 1) for length in lengths], block_size=16
    )
    assert [group.rows.tolist() for group in batch.groups] == [[0, 4, 2], [3, 1]]
    assert [tuple(group.table.shape) for group in batch.groups] == [(3, 100), (2, 2)]


def test_blocks_beyond_the_tokens_are_not_looked_at() -> None:
    batch = PagedBatch.of([SequenceSlice([4, 1000], 0, 16)], block_size=16)
    assert batch.largest_block == 4


@pytest.mark.parametrize(
    ("slices", "message"),
    [
        ([], "a batch of no slices"),
        ([SequenceSlice([0], 0, 0)], "a slice of 0 tokens from 0 on"),
        ([SequenceSlice([0], -1, 2)], "a slice of 2 tokens from -1 on"),
        ([SequenceSlice([0], 10, 7)], "a block table of 1 blocks; 17 tokens need 2"),
        ([SequenceSlice([0, -1], 10, 7)], "block -1 in a block table"),
    ],
)
def test_what_is_no_batch_is_refused(slices: list[SequenceSlice], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        PagedBatch.of(slices, block_size=16)
