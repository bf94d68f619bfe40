"""Requests in the order of time, where a file holds them nearly so."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import replace

from prefix_cache.replay.formats.request import Request

_LOOK_AHEAD = 512


class InTime:
    """Puts requests into order that are at most some hundred places away from theirs.

    Those further away come as soon as they can; ``late`` counts them.  Times count from the
    first request on.  Requests without a time come in the order of the file.
    """

    def __init__(self, requests: Iterator[Request]) -> None:
        self.late = 0
        self._requests = requests

    def __iter__(self) -> Iterator[Request]:
        first: float | None = None
        now = 0.0
        for request in self._sorted():
            if request.at is None:
                yield request
                continue
            first = request.at if first is None else first
            at = request.at - first
            self.late += at < now
            now = max(now, at)
            yield replace(request, at=now)

    def _sorted(self) -> Iterator[Request]:
        waiting: list[tuple[float, int, Request]] = []
        for place, request in enumerate(self._requests):
            if request.at is None:
                yield request
                continue
            heapq.heappush(waiting, (request.at, place, request))
            if len(waiting) > _LOOK_AHEAD:
                yield heapq.heappop(waiting)[-1]
        while waiting:
            yield heapq.heappop(waiting)[-1]
