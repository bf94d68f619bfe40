"""Files of JSON lines, plain or gzip, read line by line."""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from prefix_cache.errors import CutShort, MalformedFile

_GZIP = b"\x1f\x8b"
_OTHER_PACKINGS = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"BZh": "bzip2",
    b"PK\x03\x04": "zip",
}
_PIECE_BYTES = 1 << 20
_LINE_PART = 1 << 16


class Unexpected(Exception):
    """What is wrong with the value of a line, and what was expected."""


def malformed(path: Path, problem: str, line: int | None = None) -> MalformedFile:
    """Return the error that names the file, the line (from 1) and the problem."""
    return MalformedFile(f"{_place(path, line)}: {problem}", file=str(path), line=line)


def _place(path: Path, line: int | None) -> str:
    return f"{path}, line {line}" if line else str(path)


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and content of the lines that are not blank; unpacked, whatever the file's name.

    Raises MalformedFile for a file that cannot be read, and CutShort behind the last whole line
    of one that cannot be unpacked to its end.
    """
    number = 0
    try:
        with _opened(path) as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error, number + 1) from None


def first_lines(path: Path, count: int) -> list[str]:
    """Return the first lines, blank or not, very long ones in parts; fewer of a file cut short.

    Raises as ``numbered_lines`` does, CutShort where there is no line at all.
    """
    lines: list[str] = []
    try:
        with _opened(path) as file:
            while len(lines) < count and (line := file.readline(_LINE_PART)):
                lines.append(line.decode("utf-8-sig", "replace"))
    except (OSError, EOFError, zlib.error) as error:
        unreadable = _unreadable(path, error, len(lines) + 1)
        if not lines or not isinstance(unreadable, CutShort):
            raise unreadable from None
    return lines


def text_pieces(path: Path) -> Iterator[str]:
    """The text of a file in pieces of a bounded size.

    What is no UTF-8 becomes a replacement character.  Raises as ``numbered_lines`` does.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
    number = 1
    try:
        with _opened(path) as file:
            # What is there already: of a file cut short, all before the cut.
            while piece := file.read1(_PIECE_BYTES):
                yield decoder.decode(piece)
                number += piece.count(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(path, error, number) from None


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader | gzip.GzipFile]:
    with path.open("rb") as plain:
        if not plain.seekable():
            raise malformed(path, "is a pipe; expected a file, which is read more than once")
        head = plain.read(6)
        plain.seek(0)
        for mark, name in _OTHER_PACKINGS.items():
            if head.startswith(mark):
                raise malformed(path, f"is packed with {name}; expected plain text or gzip")
        if not head.startswith(_GZIP):
            yield plain
            return
        with gzip.open(plain) as unpacked:
            yield unpacked


def _unreadable(path: Path, error: Exception, line: int) -> MalformedFile:
    if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
        return malformed(path, f"cannot be read ({error.strerror})")
    problem = f"no whole gzip stream ({error})"
    return CutShort(f"{_place(path, line)}: {problem}", file=str(path), line=line)


def parse(line: bytes) -> Any:
    """Return the JSON value of a line.  Raises Unexpected."""
    try:
        return json.loads(line.decode("utf-8-sig").strip())
    except UnicodeDecodeError as error:
        raise Unexpected(f"expected UTF-8, got byte {line[error.start]:#04x}") from None
    except json.JSONDecodeError as error:
        raise Unexpected(f"expected JSON, but {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise Unexpected(f"expected usable JSON, but {error}") from None


def kind(value: Any) -> str:
    """Return what a JSON value is, for people."""
    names = {type(None): "null", dict: "an object", list: "a list", str: "text", bool: "a boolean"}
    return names.get(type(value), "a number")
