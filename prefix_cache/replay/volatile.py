"""Text that changes from call to call: what it is, and a prompt without it.

Such text near the head of a prompt makes everything behind it new to a cache.
"""

from __future__ import annotations

import re

_HEX = "[0-9a-fA-F]"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"

_KINDS = {
    "uuid": rf"\b{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}\b",
    "date or time": (
        r"\b\d{4}[-/]\d{1,2}[-/]\d{1,2}(?:[T ]\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?"
        r"(?:Z|[+-]\d{2}:?\d{2})?)?"
        rf"|\b{_MONTH}\.? \d{{1,2}}(?:st|nd|rd|th)?,? \d{{4}}\b"
        rf"|\b\d{{1,2}} {_MONTH}\.?,? \d{{4}}\b"
        r"|\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\b"
    ),
    "hexadecimal": rf"\b(?=[a-fA-F]*\d){_HEX}{{8,}}\b",
    "number": r"\b\d+(?:[.,]\d+)*\b",
}
_ANY = re.compile("|".join(f"({pattern})" for pattern in _KINDS.values()))

# A number alone is more often meant than volatile; one as long as a clock's is not.
_NORMALISED = re.compile(
    "|".join([_KINDS["uuid"], _KINDS["date or time"], _KINDS["hexadecimal"], r"\b\d{9,}\b"])
)

OTHER_TEXT = "other text"


def kind_at(text: str, position: int) -> str:
    """Return what stands at a position of a text: a uuid, a date or time, a number ..."""
    for match in _ANY.finditer(text):
        if match.start() <= position <= match.end():
            return list(_KINDS)[(match.lastindex or 1) - 1]
    return OTHER_TEXT


def normalised(text: str) -> str:
    """Return the text with one sign for every uuid, date, time, and long number."""
    return _NORMALISED.sub("#", text)
