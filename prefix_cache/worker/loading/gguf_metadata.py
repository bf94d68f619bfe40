"""The metadata of a GGUF file, typed."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import gguf
import msgspec

from prefix_cache.errors import MalformedFile

_T = TypeVar("_T")


class Metadata:
    """Values by their keys.  Raises MalformedFile for one of another type."""

    def __init__(self, path: Path, reader: gguf.GGUFReader) -> None:
        self.path = path
        self._fields = reader.fields

    def get(self, key: str, kind: type[_T]) -> _T:
        """Return a value that must be there."""
        value = self.find(key, kind)
        if value is None:
            raise MalformedFile(f"{self.path} has no {key}", file=str(self.path), key=key)
        return value

    def find(self, key: str, kind: type[_T]) -> _T | None:
        """Return a value, or None where there is none."""
        if key not in self._fields:
            return None
        try:
            return msgspec.convert(self._fields[key].contents(), kind)
        except (msgspec.ValidationError, UnicodeDecodeError) as error:
            raise MalformedFile(
                f"{self.path}: {key}: {error}", file=str(self.path), key=key
            ) from error
