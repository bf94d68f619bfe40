"""How fast a node prefills is learned, and how far it is with the first turn reckoned."""

from __future__ import annotations

import pytest

from router.prefill_progress import PrefillProgress


def test_nothing_is_done_while_no_speed_is_known() -> None:
    progress = PrefillProgress()
    assert progress.done(10.0) == 0

    progress.waits("a", 1_000, 10.0)

    assert (progress.tokens_per_second, progress.done(99.0)) == (0, 0)


def test_the_speed_is_that_of_the_time_in_which_any_turn_waited() -> None:
    """1,000 tokens from 10 to 12, 500 from 12 to 13, nothing until 50, then 1,000 in 2 seconds."""
    progress = PrefillProgress()
    progress.waits("a", 1_000, 10.0)
    progress.waits("b", 500, 11.0)
    progress.begins("a", 12.0)
    assert progress.tokens_per_second == pytest.approx(500)
    progress.begins("b", 13.0)
    progress.waits("c", 1_000, 50.0)
    progress.begins("c", 52.0)

    assert progress.tokens_per_second == pytest.approx(500)


def test_turns_that_begin_together_are_counted_together() -> None:
    """An engine that prefills both at once is no faster for the second than it was for both."""
    progress = PrefillProgress()
    progress.waits("a", 1_000, 0.0)
    progress.waits("b", 1_000, 0.0)
    progress.begins("b", 2.0)
    progress.begins("a", 2.0)

    assert progress.tokens_per_second == pytest.approx(1_000)


def test_what_is_done_grows_with_time_up_to_all_of_the_first_turn() -> None:
    progress = PrefillProgress()
    progress.waits("a", 1_000, 0.0)
    progress.begins("a", 1.0)
    progress.waits("b", 800, 10.0)
    progress.waits("c", 5_000, 10.1)

    assert [progress.done(now) for now in (10.0, 10.5, 11.0)] == pytest.approx([0, 500, 800])
    progress.begins("b", 10.8)
    assert progress.done(12.8) == pytest.approx(2_000)


def test_a_turn_that_leaves_is_not_waited_for() -> None:
    progress = PrefillProgress()
    progress.waits("a", 1_000, 0.0)
    progress.begins("a", 1.0)
    progress.waits("b", 800, 10.0)
    progress.leaves("b")

    assert progress.done(11.0) == 0
    assert progress.tokens_per_second == 1_000


def test_an_old_speed_is_forgotten() -> None:
    """What was seen an hour ago counts next to nothing."""
    progress = PrefillProgress()
    progress.waits("a", 100_000, 0.0)
    progress.begins("a", 1.0)
    progress.waits("b", 1_000, 3_600.0)
    progress.begins("b", 3_610.0)

    assert progress.tokens_per_second == pytest.approx(125, rel=0.02)
