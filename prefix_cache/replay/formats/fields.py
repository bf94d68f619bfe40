"""Values of a record, checked: numbers, times, token ids, names."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from prefix_cache.errors import InvalidTokens, InvalidTokenType
from prefix_cache.index.tokens import as_token_bytes
from prefix_cache.replay.json_lines import Unexpected, kind

MAX_LENGTH = 2**31

CONVERSATION = ("session_id", "sessionId", "conversation_id", "conversation", "session", "chat_id")
TIME = ("timestamp", "TIMESTAMP", "created_at", "created", "arrival_time", "arrived_at", "time")

_WHOLE = re.compile(r"(-?[0-9]{1,20})(?:\.0*)?")
_NANOSECONDS = (("arrival_time_ns", 1e-9), ("arrived_at_ns", 1e-9))
# Seconds since 1970 have ten digits; longer numbers count what a second has many of.
_UNITS = ((1e17, 1e-9), (1e14, 1e-6), (1e11, 1e-3))
_LATEST = 1e20


def as_object(value: Any) -> dict[str, Any]:
    """Return a JSON object.  Raises Unexpected for anything else."""
    if not isinstance(value, dict):
        raise Unexpected(f"expected a JSON object, got {kind(value)}")
    return value


def first_of(record: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the value of the first name that the record has; None if it has none."""
    return next((record[name] for name in names if record.get(name) is not None), None)


def whole(name: str, value: Any, least: int, most: int) -> int:
    """Return a whole number, also one written as text, or as 12.0.  Raises Unexpected."""
    number = value
    if isinstance(value, str) and (match := _WHOLE.fullmatch(value.strip())):
        number = int(match[1])
    elif isinstance(value, float) and value.is_integer():
        number = int(value)
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        expected = f"a whole number from {least} to {most}"
        raise Unexpected(f"{name}: expected {expected}, got {reprlib.repr(value)}")
    return number


def milliseconds(name: str, value: Any) -> float:
    """Return a time in milliseconds from 0 as seconds.  Raises Unexpected."""
    return _from_zero(value, f"{name}: expected milliseconds from 0") / 1000


def time_of(record: Mapping[str, Any]) -> float | None:
    """Return when a request came, in seconds; None where the record does not say.

    Numbers are seconds, or where they are too large for that thousandths, millionths and so on;
    other text is a date and time.  Raises Unexpected for any other.
    """
    for name, unit in _NANOSECONDS:
        if record.get(name) is not None:
            return unit * whole(name, record[name], 0, 2**63)
    value = first_of(record, TIME)
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return _seconds_of_date(value)
    seconds = _from_zero(value, "expected a time")
    return seconds * next((unit for least, unit in _UNITS if seconds >= least), 1.0)


def name_of(record: Mapping[str, Any]) -> str:
    """Return which conversation the record says it belongs to; empty: it does not say."""
    value = first_of(record, CONVERSATION)
    return str(value) if isinstance(value, str | int) else ""


def token_ids(name: str, value: Any) -> bytes:
    """Return a list of token ids as uint32 little-endian.  Raises Unexpected."""
    if not isinstance(value, list):
        raise Unexpected(f"{name}: expected a list of token ids, got {kind(value)}")
    try:
        return as_token_bytes(value)
    except (InvalidTokens, InvalidTokenType) as error:
        raise Unexpected(f"{name}: {error}") from None


def _from_zero(value: Any, expected: str) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value < _LATEST:
        raise Unexpected(f"{expected}, got {reprlib.repr(value)}")
    return float(value)


def _seconds_of_date(value: str) -> float:
    try:
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        raise Unexpected(f"expected a date and time, got {reprlib.repr(value)}") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
