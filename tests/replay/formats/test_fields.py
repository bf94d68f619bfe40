"""Values as odd logs write them."""

from __future__ import annotations

from typing import Any

import pytest

from prefix_cache.replay.formats.fields import milliseconds, time_of, whole
from prefix_cache.replay.json_lines import Unexpected


@pytest.mark.parametrize("value", [374, "374", " 374 ", 374.0, "374.0", "374."])
def test_a_whole_number_may_be_text_or_have_a_fraction_of_0(value: Any) -> None:
    assert whole("length", value, 0, 1000) == 374


@pytest.mark.parametrize(
    "value",
    [True, None, [1], 1.5, "1.5", "", "x", "1" * 5000, 1001, "-1", float("inf"), float("nan")],
)
def test_what_is_no_whole_number_of_the_range_is_refused(value: Any) -> None:
    with pytest.raises(Unexpected, match="length: expected a whole number from 0 to 1000, got "):
        whole("length", value, 0, 1000)


@pytest.mark.parametrize(
    "value",
    [1_700_000_000, "1700000000", 1_700_000_000_000, "1700000000000", "2023-11-14T22:13:20Z"],
)
def test_a_time_is_the_same_in_seconds_milliseconds_and_as_a_date(value: Any) -> None:
    assert time_of({"timestamp": value}) == 1_700_000_000


@pytest.mark.parametrize("value", ["nan", "inf", "-5", -5, 10**400, True, [1]])
def test_a_time_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(Unexpected, match="expected a time, got "):
        time_of({"timestamp": value})
    with pytest.raises(Unexpected, match="timestamp: expected milliseconds from 0, got "):
        milliseconds("timestamp", value)
