"""Integers that callers pass: any type of integer is taken, and its range is checked."""

from __future__ import annotations

import operator

from prefix_cache.errors import InvalidArgument


def checked_integer(name: str, value: object, low: int, high: int) -> int:
    """Return ``value`` as an int from ``low`` to ``high``.  Raises ``InvalidArgument``."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        raise InvalidArgument(
            f"{name} is {value!r}, expected an integer from {low} to {high}",
            name=name,
            value=repr(value),
        )
    return number
