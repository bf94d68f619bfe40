"""Sizes of memory as people write them: 24GB is 24,000,000,000 bytes, 24GiB is 25,769,803,776."""

from __future__ import annotations

import re
from decimal import Decimal

from prefix_cache.errors import InvalidArgument

GIB = 2**30

_DECIMAL = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BINARY = {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_UNITS = _DECIMAL | _BINARY
_SIZE = re.compile(r"(?P<number>[0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?P<unit>[a-z]*)", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Return the bytes of a size such as ``24GiB``, ``24GB`` or ``512 MiB``.

    Raises InvalidArgument for anything else, a number without unit or with half a one included:
    ``24G`` may be either of two sizes that are 7 % apart.
    """
    found = _SIZE.fullmatch(text.strip())
    unit = found and _UNITS.get(found["unit"].lower())
    if not found or not unit:
        raise InvalidArgument(
            f"{text!r} is no size: expected a number and a unit, such as 24GiB (2^30 bytes) or "
            "24GB (10^9 bytes)",
            size=text,
        )
    return int(Decimal(found["number"]) * unit)


def show_bytes(size: float) -> str:
    """Return a size in the binary unit that suits it: ``128 KiB``, ``4.64 GiB``."""
    for name, unit in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size) >= unit:
            return (
                f"{size / unit:,.4g} {name}" if size / unit < 1000 else f"{size / unit:,.0f} {name}"
            )
    return f"{size:,.0f} B"
