"""What was played so far: found to the word, with when it was used last."""

from __future__ import annotations

import tracemalloc

from prefix_cache.replay.measure.seen import Seen, Stretch
from tests.replay.measure.words import counting, ids, random_requests


def use(seen: Seen, words: bytes, stamp: int) -> None:
    seen.use(words, seen.find(words), stamp)


def test_the_longest_beginning_is_found_with_its_last_uses() -> None:
    seen = Seen()
    use(seen, ids(1, 2, 3, 4), 1)
    use(seen, ids(1, 2, 9), 2)
    use(seen, ids(1), 3)

    assert seen.find(ids(1, 2, 3, 5)).stretches == (Stretch(1, 3), Stretch(2, 2), Stretch(3, 1))
    assert seen.find(ids(7)).stretches == ()
    assert seen.find(ids(1, 2, 9, 9)).num_words == 3


def test_a_sequence_that_goes_on_is_one_stretch() -> None:
    seen = Seen()
    for stamp in range(1, 10):
        use(seen, counting(0, 10 * stamp), stamp)

    assert seen.find(counting(0, 100)).stretches == (Stretch(90, 9),)


def test_how_it_went_on_last_is_told_up_to_a_length() -> None:
    seen = Seen()
    use(seen, ids(1, 2, 3, 4, 5), 1)
    use(seen, ids(1, 2, 6, 7), 2)

    assert seen.find(ids(1, 2, 8)).went_on(10) == ids(6, 7)
    assert seen.find(ids(1, 2, 3, 9)).went_on(1) == ids(4)
    assert seen.find(ids(1, 2, 6, 7)).went_on(10) == b""


def test_larger_words_than_all_before_change_nothing_that_was_seen() -> None:
    """Words are kept in as few bytes as the largest needs: one that needs more comes at last."""
    for largest in (255, 256, 2**16, 2**24, 2**32 - 1):
        seen = Seen()
        use(seen, ids(1, 2, 3, 4), 1)
        use(seen, ids(1, 2, largest, 3), 2)

        assert seen.find(ids(1, 2, 3, 4)).stretches == (Stretch(2, 2), Stretch(4, 1))
        assert seen.find(ids(1, 2, largest, 3)).stretches == (Stretch(4, 2),)
        assert seen.find(ids(1, 2, 7)).went_on(10) == ids(largest, 3)
        assert seen.find(ids(1, 2, 3 + 2**8, 4)).num_words == 2


def test_memory_is_a_byte_for_a_small_word_that_is_new() -> None:
    words = ids(*(at * at % 251 for at in range(100_000)))
    seen = Seen()

    tracemalloc.start()
    use(seen, words, 1)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 130_000


def test_it_agrees_with_looking_through_all_sequences() -> None:
    for seed in range(100):
        seen, told = Seen(), list[bytes]()
        for stamp, each in enumerate(random_requests(seed), start=1):
            words = each.prompt + each.answer
            found = seen.find(words)
            longest = max((_common(words, other) for other in told), default=0)
            assert found.num_words == longest
            for position, used in _uses(found.stretches):
                latest = max(
                    when
                    for when, other in enumerate(told, start=1)
                    if _common(words, other) > position
                )
                assert used == latest
            seen.use(words, found, stamp)
            told.append(words)


def _common(one: bytes, other: bytes) -> int:
    pairs = zip(range(0, len(one), 4), range(0, len(other), 4), strict=False)
    count = 0
    for at, _ in pairs:
        if one[at : at + 4] != other[at : at + 4]:
            break
        count += 1
    return count


def _uses(stretches: tuple[Stretch, ...]) -> list[tuple[int, int]]:
    """Position and last use of each word."""
    uses: list[tuple[int, int]] = []
    for end, stamp in stretches:
        uses += [(position, stamp) for position in range(len(uses), end)]
    return uses
