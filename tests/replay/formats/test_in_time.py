"""Requests in the order of time."""

from __future__ import annotations

from collections.abc import Iterable

from prefix_cache.replay.formats import Request
from prefix_cache.replay.formats.in_time import InTime


def requests(times: Iterable[float | None]) -> InTime:
    return InTime(Request.of_tokens(str(at), 1, b"    ", b"", at) for at in times)


def test_requests_that_are_a_little_out_of_order_are_sorted() -> None:
    in_time = requests([5.0, 3.0, 4.0, 9.0])

    assert [request.at for request in in_time] == [0.0, 1.0, 2.0, 6.0]
    assert in_time.late == 0


def test_one_that_comes_too_late_to_be_sorted_is_played_at_once_and_counted() -> None:
    in_time = requests([*map(float, range(10, 5010)), 5.0])

    played = list(in_time)

    assert in_time.late == 1
    late = next(place for place, each in enumerate(played) if each.conversation == "5.0")
    assert played[late].at == played[late - 1].at


def test_without_times_the_order_is_that_of_the_file() -> None:
    in_time = requests([None, None, None])

    assert [request.at for request in in_time] == [None, None, None]
