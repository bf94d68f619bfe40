"""Arrival times, kept."""

from __future__ import annotations

from dataclasses import replace

from prefix_cache.replay.measure.pace import paced
from tests.replay.measure.words import ids, request


def test_requests_come_at_their_times_faster_by_the_speed() -> None:
    """A request takes 4 s here: the third, due at 5 s, comes late and is not waited for."""
    now, waits = [100.0], list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds

    requests = [replace(request(ids(1)), at=at) for at in (0.0, 8.0, 10.0, 40.0)]
    played = []
    for each in paced(requests, speed=2.0, wait=wait, clock=lambda: now[0]):
        played.append((each.at, now[0] - 100))
        now[0] += 4.0

    assert played == [(0.0, 0.0), (8.0, 4.0), (10.0, 8.0), (40.0, 20.0)]
    assert waits == [8.0]


def test_requests_without_times_are_not_waited_for() -> None:
    def wait(seconds: float) -> None:
        raise AssertionError("nothing to wait for")

    assert len(list(paced([request(ids(1))] * 3, 1.0, wait))) == 3
