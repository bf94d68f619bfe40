"""Requests at the times at which they came."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from prefix_cache.replay.formats import Request


def paced(
    requests: Iterable[Request],
    speed: float,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Request]:
    """Yield each request when it is due, ``speed`` times as fast as it came; late ones at once.

    Those without a time are always due.
    """
    began = clock()
    for request in requests:
        if request.at is not None:
            early = began + request.at / speed - clock()
            if early > 0:
                wait(early)
        yield request
