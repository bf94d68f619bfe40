"""Parts of what was prefilled: they add up, whatever was known of a prompt."""

from __future__ import annotations

from random import Random

from prefix_cache.replay.measure.loss import PARTS, Loss, Prospect


def test_every_part_has_its_tokens() -> None:
    """100 tokens: 70 seen, of which 64 are in blocks, 48 at this node, and 32 were not evicted."""
    prospect = Prospect(
        prompt_tokens=100,
        block_size=16,
        seen=70,
        findable=64,
        at_node=48,
        reencoded=75,
        repeated=10,
    )

    assert prospect.loss(32) == Loss(
        first_seen=15,
        divergence=10,
        reencoding=5,
        block_rounding=6,
        last_token=0,
        eviction=16,
        routing=16,
    )


def test_a_prompt_seen_whole_in_full_blocks_computes_its_last_block() -> None:
    prospect = Prospect(
        prompt_tokens=64,
        block_size=16,
        seen=64,
        findable=48,
        at_node=48,
        reencoded=0,
        repeated=0,
    )

    assert prospect.loss(48) == Loss(last_token=16)


def test_parts_add_up_and_none_is_below_zero() -> None:
    random = Random(0)
    for _ in range(2_000):
        block_size = random.choice([1, 2, 16])
        prompt = random.randint(1, 100)
        seen = random.randint(0, prompt)
        findable = min(seen, prompt - 1) // block_size * block_size
        at_node = random.randint(0, findable // block_size) * block_size
        cached = random.randint(0, at_node // block_size) * block_size
        loss = Prospect(
            prompt_tokens=prompt,
            block_size=block_size,
            seen=seen,
            findable=findable,
            at_node=at_node,
            reencoded=random.randint(0, 120),
            repeated=random.randint(0, 120),
        ).loss(cached)
        assert loss.tokens == prompt - cached
        assert min(getattr(loss, part) for part in PARTS) >= 0


def test_losses_add_part_by_part() -> None:
    loss = Loss(first_seen=1, eviction=2)

    loss.add(Loss(eviction=3, routing=4))

    assert loss == Loss(first_seen=1, eviction=5, routing=4)
