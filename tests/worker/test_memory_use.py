"""Slots that hold tokens, and blocks that are shared, counted once."""

from __future__ import annotations

from prefix_cache.worker.memory_use import MemoryUse, memory_use
from prefix_cache.worker.running_sequence import RunningSequence


def sequence(block_table: list[int], num_computed: int) -> RunningSequence:
    opened = RunningSequence([0])
    opened.block_table, opened.num_computed = block_table, num_computed
    return opened


def test_the_empty_slots_are_those_behind_the_last_token() -> None:
    use = memory_use([sequence([4, 7, 2], 33)], 16)
    assert use == MemoryUse(blocks=3, slots=48, filled_slots=33, unshared_blocks=3)
    assert use.share_filled == 33 / 48


def test_a_prompt_that_is_not_computed_yet_holds_empty_blocks() -> None:
    assert memory_use([sequence([4, 7, 2], 16)], 16).filled_slots == 16


def test_shared_blocks_count_once_and_are_as_full_as_their_fullest_user() -> None:
    use = memory_use([sequence([4, 7], 20), sequence([4, 7], 22), sequence([4, 9], 18)], 16)
    assert use == MemoryUse(blocks=3, slots=48, filled_slots=16 + 6 + 2, unshared_blocks=6)
    assert use.share_saved == 0.5


def test_without_sequences_nothing_is_wasted_or_saved() -> None:
    use = memory_use([], 16)
    assert (use.share_filled, use.share_saved) == (1.0, 0.0)
