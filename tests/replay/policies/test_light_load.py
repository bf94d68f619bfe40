"""The generated load: chats that share a system prompt, one turn a second or so."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from prefix_cache.replay.policies.block_lru import pooled_hit_rate
from prefix_cache.replay.policies.light_load import light_load
from prefix_cache.replay.policies.policy_comparison import compare
from prefix_cache.replay.policies.simulation import Fleet


def test_the_load_is_the_same_for_the_same_seed() -> None:
    assert light_load() == light_load(0)
    assert light_load(1) != light_load(2)


def test_400_chats_of_six_turns_grow_from_one_system_prompt() -> None:
    requests = light_load()

    assert set(Counter(request.conversation for request in requests).values()) == {6}
    assert len(requests) == 2_400
    assert len({request.block_hashes[:3] for request in requests}) == 1
    assert requests == sorted(requests, key=lambda request: request.at)
    chat = [request for request in requests if request.conversation == "chat-7"]
    for earlier, later in pairwise(chat):
        full = earlier.input_tokens // 512
        assert later.block_hashes[:full] == earlier.block_hashes[:full]
        assert later.input_tokens > earlier.input_tokens + earlier.output_tokens


def test_sticky_spreads_it_and_hits_what_one_cache_would() -> None:
    """Longest prefix herds it: the arm that must lose."""
    trace, fleet = light_load(), Fleet(num_nodes=8, num_blocks=3_000)

    sticky, prefix = compare(trace, fleet, ["sticky", "prefix"]).results

    pooled = pooled_hit_rate(trace, 8 * 3_000)
    assert round(pooled, 4) == 0.7333
    assert sticky.hit_rate >= 0.99 * pooled
    assert sticky.imbalance <= 1.1
    assert prefix.imbalance == 8.0
