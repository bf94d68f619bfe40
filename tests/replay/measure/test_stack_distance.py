"""One pass against caches of every size, each by itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats import ReadOptions, Request, Source
from prefix_cache.replay.measure.seen import Seen
from prefix_cache.replay.measure.stack_distance import StackDistances
from prefix_cache.replay.measure.targets import LocalCache
from tests.replay.measure.words import ids, random_requests, request


def one_pass(requests: Sequence[Request], block_words: int) -> StackDistances:
    seen, distances = Seen(), StackDistances(block_words)
    for stamp, each in enumerate(requests, start=1):
        words = each.prompt + each.answer
        found = seen.find(words)
        prompt_words = len(each.prompt) // TOKEN_BYTES
        distances.use(found.stretches, prompt_words, len(words) // TOKEN_BYTES, stamp)
        seen.use(words, found, stamp)
    return distances


def one_cache(requests: Sequence[Request], block_words: int, num_blocks: int) -> int:
    """Blocks hit on a real cache."""
    cache = LocalCache(num_blocks, block_words)
    return sum(cache.serve(each).cached_words or 0 for each in requests) // block_words


def test_a_block_hits_in_caches_larger_than_what_was_used_since() -> None:
    """Words are blocks: since 1, 2 and 3 were used, 4 and 5 were, and 1 and 2 stand before 3."""
    requests = [request(ids(*prompt)) for prompt in [(1, 2, 3), (4, 5), (1, 2, 3, 9)]]

    distances = one_pass(requests, 1)

    assert distances.largest_request == 4
    assert distances.hit_blocks([4, 5, 100]).tolist() == [2, 3, 3]


@pytest.mark.parametrize("block_words", [1, 2, 3, 4])
def test_all_sizes_agree_with_a_cache_of_that_size_on_random_prompts(block_words: int) -> None:
    for seed in range(40):
        requests = random_requests(seed)
        distances = one_pass(requests, block_words)
        smallest, largest = distances.largest_request, distances.num_blocks + 1
        sizes = range(smallest, largest + 1, 1 + (largest - smallest) // 12)
        assert distances.hit_blocks(sizes).tolist() == [
            one_cache(requests, block_words, size) for size in sizes
        ]


@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("conversations/sweagent_mit_trajs.jsonl.gz", 308),
        ("conversations/oasst_en_100_tree_paths.jsonl.gz", 400),
        ("traces/sharegpt_qwen3_token_ids_300.jsonl.gz", 300),
        ("traces/mooncake_conversation_trace.jsonl.gz", 2_000),
    ],
)
def test_ten_sizes_of_real_traffic_agree_to_the_token(
    shared_data: Path, name: str, most: int
) -> None:
    source = Source(shared_data / name, ReadOptions())
    requests = [each for each, _ in zip(source, range(most), strict=False)]
    block_words = source.grain.words if source.grain.words > 1 else 16
    distances = one_pass(requests, block_words)

    spread = np.geomspace(distances.largest_request, distances.num_blocks, 10)
    sizes = np.rint(spread).astype(int).tolist()

    hits = distances.hit_blocks(sizes).tolist()
    assert hits == [one_cache(requests, block_words, size) for size in sizes]
    assert hits[0] < hits[-1]
