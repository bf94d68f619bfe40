"""Sums behind a place."""

from __future__ import annotations

from random import Random

from prefix_cache.replay.measure.fenwick import Fenwick


def test_sums_are_those_of_a_list_however_it_grows() -> None:
    random = Random(0)
    fenwick, numbers = Fenwick(), [0] * 300

    for step in range(2_000):
        place = random.randint(1, 1 + min(step // 4, 298))
        number = random.randint(-5, 20)
        fenwick.add(place, number)
        numbers[place] += number
        asked = random.randint(0, place)
        assert fenwick.after(asked) == sum(numbers[asked + 1 :])
