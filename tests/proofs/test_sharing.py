"""Answers and beams of one prompt hold in common what they have in common."""

from __future__ import annotations

import pytest

from prefix_cache.worker.loading import LoadedModel
from prefix_cache.worker.sharing import Sharing, measure_sharing

from .workers import worker


@pytest.fixture(scope="module")
def table(stories: LoadedModel) -> list[Sharing]:
    prompt = stories.tokenizer.encode("Once upon a time there was a cat. " * 9, bos=True)[:64]
    return measure_sharing(worker(stories).engine, prompt, 98)


def test_parallel_answers_share_exactly_the_blocks_of_the_prompt(table: list[Sharing]) -> None:
    # 4 blocks of the prompt; of each answer none after the first step, then 1 to 6 for 16 steps.
    for row, n in zip(table[:3], (2, 4, 6), strict=True):
        own = 16 * (1 + 2 + 3 + 4 + 5 + 6) / 97
        assert (row.width, row.is_beam_search) == (n, False)
        assert row.blocks == pytest.approx(4 + n * own)
        assert row.unshared_blocks == pytest.approx(n * (4 + own))


def test_more_answers_save_the_share_of_the_prompt_for_all_but_one(table: list[Sharing]) -> None:
    of_prompt = 4 / (table[0].unshared_blocks / 2)
    for row, n in zip(table[:3], (2, 4, 6), strict=True):
        assert row.share_saved == pytest.approx(of_prompt * (n - 1) / n)


def test_beams_save_more_than_answers_of_the_same_number(table: list[Sharing]) -> None:
    for sampled, searched in zip(table[:3], table[3:], strict=True):
        assert searched.is_beam_search
        assert searched.width == sampled.width
        assert searched.unshared_blocks == pytest.approx(sampled.unshared_blocks)
        assert searched.share_saved > sampled.share_saved
    assert [row.share_saved for row in table[3:]] == sorted(row.share_saved for row in table[3:])
