"""Hit rates from a sample, beside the exact ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from prefix_cache.replay.formats import ReadOptions, Source
from prefix_cache.replay.measure.sampled import SampledDistances
from tests.replay.measure.test_stack_distance import one_pass
from tests.replay.measure.words import counting, request


def test_a_sample_of_all_blocks_is_exact_but_for_the_partial_one() -> None:
    requests = [request(counting(1000 * (n % 7), 48 + n)) for n in range(40)]
    sampled = SampledDistances(16, 16, 1.0)
    for each in requests:
        sampled.use(each)

    exact = one_pass(requests, 16)
    sizes = [exact.num_blocks, 10 * exact.num_blocks]

    rates = [point.hit_rate for point in sampled.points(sizes)]
    tokens = sum(each.prompt_tokens for each in requests)
    assert rates == pytest.approx([16 * int(exact.hit_blocks(size)) / tokens for size in sizes])
    assert sampled.largest_request == exact.largest_request


@pytest.mark.parametrize(
    ("name", "block_words", "block_size"),
    [
        ("traces/mooncake_conversation_trace.jsonl.gz", 2, 512),
        ("conversations/sweagent_mit_trajs.jsonl.gz", 16, 16),
    ],
)
def test_a_twentieth_of_the_blocks_tells_the_rate_within_its_error(
    shared_data: Path, name: str, block_words: int, block_size: int
) -> None:
    requests = list(Source(shared_data / name, ReadOptions()))
    sampled = SampledDistances(block_words, block_size, 0.05)
    for each in requests:
        sampled.use(each)
    exact = one_pass(requests, block_words)
    sizes = [exact.largest_request << step for step in range(1, 9)]

    for point, blocks in zip(sampled.points(sizes), exact.hit_blocks(sizes).tolist(), strict=True):
        assert point.error is not None
        assert abs(point.hit_rate - blocks * block_size / sampled.prompt_tokens) <= point.error
        assert point.error < 0.1


def test_without_a_request_there_is_no_curve() -> None:
    assert SampledDistances(16, 16, 0.5).points([1, 2]) == []


def test_rates_of_a_small_sample_stay_between_nothing_and_all() -> None:
    """Nothing hits; more than a tenth of the blocks may be in a sample of a tenth."""
    for seed in range(20):
        sampled = SampledDistances(16, 16, 0.1)
        sampled.use(request(counting(10_000 * seed, 1600)))
        (point,) = sampled.points([100])
        assert 0 <= point.hit_rate <= 1
