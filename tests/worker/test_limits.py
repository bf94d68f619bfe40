"""How much fits, by the blocks that answers share and those that are their own."""

from __future__ import annotations

import pytest

from prefix_cache.worker.limits import Limits


def limits(num_blocks: int = 8, max_model_len: int = 1000) -> Limits:
    return Limits(64, max_model_len, max_n=8, num_blocks=num_blocks, block_size=16)


@pytest.mark.parametrize(
    ("num_prompt", "width", "room"),
    [
        (1, 1, 128),  # the last token of an answer needs no slot
        (100, 1, 29),
        (127, 1, 2),
        (128, 1, 1),
        (129, 1, 0),
        (500, 1, 0),
        (32, 2, 49),  # 2 blocks shared, 3 for each
        (33, 2, 48),
        (33, 6, 16),
        (33, 7, 0),  # no block for each
        (32, 7, 1),
    ],
)
def test_room_in_eight_blocks(num_prompt: int, width: int, room: int) -> None:
    assert limits().room(num_prompt, width) == room


def test_the_context_bounds_what_the_pool_has_room_for() -> None:
    assert limits(max_model_len=60).room(50) == 10
    assert limits(max_model_len=60).room(60) == 0
    assert limits(max_model_len=60).room(61) == 0
