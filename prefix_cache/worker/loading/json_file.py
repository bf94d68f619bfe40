"""JSON files of known fields."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from prefix_cache.errors import MalformedFile

_T = TypeVar("_T")


def read_json(path: Path, kind: type[_T]) -> _T:
    """Return what a file holds.  Raises MalformedFile for one that is missing or no ``kind``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise MalformedFile(f"{path} cannot be read: {error}", file=str(path)) from error
