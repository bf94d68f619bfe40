"""The order in which conversations are played whose file tells no times."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TypeVar

Turn = TypeVar("Turn")


def in_rotation(conversations: Iterable[Iterator[Turn]], window: int) -> Iterator[Turn]:
    """One turn of each of ``window`` live conversations after the other.

    When a conversation is over, the next one takes its place.
    """
    waiting = iter(conversations)
    live = deque(itertools.islice(waiting, window))
    while live:
        turns = live.popleft()
        for turn in itertools.islice(turns, 1):
            yield turn
            live.append(turns)
            break
        else:
            live.extendleft(itertools.islice(waiting, 1))
