"""The buddy allocator: places of powers of two, halved and joined."""

from __future__ import annotations

import itertools
import random

import pytest

from prefix_cache.simulate.allocators.buddy import Buddy


@pytest.mark.parametrize(
    ("count", "size"), [(1, 1), (2, 2), (3, 4), (16, 16), (17, 32), (2_048, 2_048), (2_049, 4_096)]
)
def test_a_request_takes_the_next_power_of_two(count: int, size: int) -> None:
    assert Buddy.size_of(count) == size


def test_places_are_halved_until_they_fit_and_the_lowest_is_taken() -> None:
    buddy = Buddy(16)
    assert [buddy.take(4), buddy.take(2), buddy.take(3), buddy.take(1)] == [0, 4, 8, 6]
    assert buddy.free == 5
    assert buddy.take(8) is None


def test_free_slots_that_do_not_lie_together_cannot_be_taken_as_one() -> None:
    """Eight of 16 are free, in four places of two: external fragmentation."""
    buddy = Buddy(16)
    starts = [buddy.take(2) for _ in range(8)]
    for start in starts[::2]:
        assert start is not None
        buddy.give_back(start, 2)
    assert buddy.free == 8
    assert buddy.take(3) is None
    assert buddy.take(2) == 0


def test_buddies_join_again_in_whatever_order_they_come_back() -> None:
    buddy = Buddy(16)
    for start in [buddy.take(4) for _ in range(4)][::-1]:
        assert start is not None
        buddy.give_back(start, 4)
    assert buddy.take(16) == 0


def test_memory_that_is_no_power_of_two_is_cut_into_the_largest_that_fit() -> None:
    """Of 15,700 slots seven places of 2,048 can be had, as in the paper; 1,364 are left."""
    buddy = Buddy(15_700)
    taken = []
    while (start := buddy.take(2_048)) is not None:
        taken.append(start)
    assert taken == [12_288, 8_192, 10_240, 0, 2_048, 4_096, 6_144]
    assert buddy.free == 1_364
    assert buddy.take(1_024) == 14_336


def test_places_never_overlap_and_all_comes_back() -> None:
    choices = random.Random(0)
    buddy = Buddy(1_000)
    held: list[tuple[int, int]] = []
    for _ in range(3_000):
        if held and choices.random() < 0.5:
            buddy.give_back(*held.pop(choices.randrange(len(held))))
        else:
            count = choices.randint(1, 60)
            if (start := buddy.take(count)) is not None:
                held.append((start, count))
        places = sorted((start, start + Buddy.size_of(count)) for start, count in held)
        assert all(end <= following for (_, end), (following, _) in itertools.pairwise(places))
        assert buddy.free == 1_000 - sum(end - start for start, end in places)
    for start, count in held:
        buddy.give_back(start, count)
    assert [buddy.take(512), buddy.take(256), buddy.take(128)] == [0, 512, 768]
