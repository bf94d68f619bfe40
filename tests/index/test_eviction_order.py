"""What goes first: the least recently released, and of one prefix the tail."""

from __future__ import annotations

from prefix_cache import BlockCache

from .stories import WHO, hit, serve


def test_a_prefix_loses_its_tail_first() -> None:
    """F107."""
    cache = BlockCache(num_blocks=3)
    serve(cache, [1] * 48)

    cache.acquire(WHO, [2] * 16)

    assert hit(cache, [1] * 49) == 32


def test_a_prefix_is_eaten_from_its_end_block_by_block() -> None:
    """F107."""
    cache = BlockCache(num_blocks=4)
    serve(cache, [1] * 64)
    left = []
    for other in range(2, 6):
        cache.acquire(WHO, [other] * 16)
        left.append(hit(cache, [1] * 65))
    assert left == [48, 32, 16, 0]


def test_a_prefix_that_is_hit_before_every_new_prompt_survives() -> None:
    """F109."""
    cache = BlockCache(num_blocks=4)
    shared = [1] * 16
    serve(cache, shared)
    for other in range(100, 140):
        assert hit(cache, [*shared, 0]) == 16
        serve(cache, [*shared, other])
        serve(cache, [other] * 16)
    assert hit(cache, [*shared, 0]) == 16


def test_looking_is_not_using() -> None:
    """A match refreshes nothing: only a release does."""
    cache = BlockCache(num_blocks=2)
    serve(cache, [1] * 16)
    serve(cache, [2] * 16)
    assert hit(cache, [1] * 17) == 16
    serve(cache, [3] * 16)
    assert hit(cache, [1] * 17) == 0
    assert hit(cache, [2] * 17) == 16


def test_of_blocks_never_read_the_oldest_written_goes() -> None:
    """F111."""
    cache = BlockCache(num_blocks=4)
    for prompt in range(4):
        serve(cache, [prompt] * 16)
    serve(cache, [4] * 16)
    assert [hit(cache, [prompt] * 17) for prompt in range(5)] == [0, 16, 16, 16, 16]


def test_the_order_of_releases_counts_not_that_of_commits() -> None:
    cache = BlockCache(num_blocks=3)
    early, late = cache.acquire(WHO, [1] * 16), cache.acquire(WHO, [2] * 16)
    cache.commit(early, 16)
    cache.commit(late, 16)
    cache.release(late)
    cache.release(early)

    cache.acquire(WHO, [3] * 32)

    assert hit(cache, [1] * 17) == 16
    assert hit(cache, [2] * 17) == 0


def test_a_shared_prefix_outlives_the_branches_that_used_it() -> None:
    cache = BlockCache(num_blocks=4)
    shared = [0] * 32
    serve(cache, shared + [1] * 16)
    serve(cache, shared + [2] * 16)

    cache.acquire(WHO, [9] * 16)
    assert hit(cache, shared + [1] * 17) == 32
    assert hit(cache, shared + [2] * 17) == 48
    cache.acquire(WHO, [8] * 16)
    assert hit(cache, shared + [2] * 17) == 32


def test_an_older_use_of_the_same_prefix_does_not_protect_a_stale_tail() -> None:
    """The prefix was used again, its old continuation was not: that is the oldest block."""
    cache = BlockCache(num_blocks=5)
    serve(cache, [0] * 48)
    serve(cache, [1] * 16)
    serve(cache, [0] * 17)

    cache.acquire(WHO, [9] * 32)

    assert hit(cache, [0] * 49) == 32
    assert hit(cache, [1] * 17) == 16


def test_what_was_released_after_the_pool_had_turned_over_counts_as_used_then() -> None:
    """A long-lived sequence does not leave blocks that look old."""
    cache = BlockCache(num_blocks=4)
    long_lived = cache.acquire(WHO, [1] * 16)
    cache.commit(long_lived, 16)
    for other in range(10, 20):
        serve(cache, [other] * 16)
    cache.release(long_lived)

    serve(cache, [2] * 32)

    assert hit(cache, [1] * 17) == 16
