"""The records of a file, one after another: JSON lines, one JSON array, CSV, or lines of a log.

Plain or gzip.  A record at a time is in memory, however long the file is.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from prefix_cache.errors import CutShort, MalformedFile
from prefix_cache.replay.json_lines import (
    Unexpected,
    first_lines,
    malformed,
    numbered_lines,
    parse,
    text_pieces,
)

Parsed = TypeVar("Parsed")

_OPENING = re.compile(r"\s*\[\s*")
_BETWEEN = re.compile(r"\s*,?\s*")
_CSV_HEADER = re.compile(r'"?[A-Za-z_][\w .]*"?(, *"?[\w .]+"?)+')
_HEAD_LINES = 100
"""So many lines of a log are looked at to tell what it is."""


class Records:
    """The records of one file, read anew at each ``read``.

    With ``skip_bad``, records that cannot be read are left out, and so is the end of a packed file
    that is cut short, as one; ``skipped`` says how many the last ``read`` has left out so far, and
    ``problems`` what was wrong with the first and the last of them.
    """

    def __init__(self, path: Path, *, skip_bad: bool = False) -> None:
        self.path = path
        self.skipped = 0
        self.problems: list[str] = []
        self._skip_bad = skip_bad

    def read(self, make: Callable[[Any, int], Parsed]) -> Iterator[Parsed]:
        """Make something of each record, which ``make`` is given with its line (from 1).

        A record is a JSON value, or a row of a CSV file as an object.  ``make`` raises
        Unexpected for one that is not as it should be.  Raises MalformedFile, which names the
        file, the line and what was expected, for such a record and for a file that cannot be
        read; a file of no record at all is refused, too.
        """
        return self._made(self._values(), make)

    def read_lines(self, make: Callable[[str, int], Parsed]) -> Iterator[Parsed]:
        """Make something of each line that is not blank, as ``read`` does of each record."""
        return self._made(self._lines(), make)

    def _made(
        self, values: Iterator[tuple[int, Any]], make: Callable[[Any, int], Parsed]
    ) -> Iterator[Parsed]:
        self.skipped, self.problems = 0, []
        empty = True
        try:
            for number, value in values:
                empty = False
                try:
                    if isinstance(value, Unexpected):
                        raise value
                    made = make(value, number)
                except Unexpected as error:
                    self._skip(malformed(self.path, str(error), number))
                    continue
                yield made
        except CutShort as error:
            if empty:
                raise
            self._skip(error)
        if empty:
            raise malformed(self.path, "it is empty; expected one record a line")

    def _skip(self, error: MalformedFile) -> None:
        if not self._skip_bad:
            raise error from None
        self.skipped += 1
        self.problems[1:] = [str(error)]

    def head(self) -> list[str]:
        """Return the first lines that are not blank, to tell what the file is."""
        return [line for line in first_lines(self.path, _HEAD_LINES) if line.strip()]

    def _values(self) -> Iterator[tuple[int, Any]]:
        first = next(iter(self.head()), "").strip()
        if first.startswith("["):
            return self._array()
        if _CSV_HEADER.fullmatch(first):
            return self._rows()
        return self._json_lines()

    def _lines(self) -> Iterator[tuple[int, str]]:
        for number, line in numbered_lines(self.path):
            yield number, line.decode("utf-8-sig", "replace")

    def _json_lines(self) -> Iterator[tuple[int, Any]]:
        for number, line in numbered_lines(self.path):
            try:
                yield number, parse(line)
            except Unexpected as error:
                yield number, error

    def _rows(self) -> Iterator[tuple[int, Any]]:
        lines = self._lines()
        _, header = next(lines)
        names = _cells(header)
        for number, line in lines:
            try:
                yield number, dict(zip(names, _cells(line), strict=False))
            except csv.Error as error:
                yield number, Unexpected(f"expected CSV, but {error}")

    def _array(self) -> Iterator[tuple[int, Any]]:
        """Elements of one array, each with the line in which it begins.

        An element that cannot be parsed hides where the next one begins: it ends the file.
        """
        decoder, cut = json.JSONDecoder(), list[CutShort]()
        pieces = _before_cut(text_pieces(self.path), cut)
        line, rest, problem = 1, "", ""
        between = _OPENING
        # Twice as much as was not whole: so a long element is tried a few times only.
        while more := _joined(pieces, len(rest)):
            text, at = rest + more, 0
            while match := between.match(text, at):
                between = _BETWEEN
                line, at = line + text.count("\n", at, match.end()), match.end()
                try:
                    value, end = decoder.raw_decode(text, at)
                except (ValueError, RecursionError) as error:
                    problem = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                    break  # the rest of it may be in the next piece
                yield line, value
                line, at = line + text.count("\n", at, end), end
            rest = text[at:]
        if cut:
            raise cut[0]
        if rest.rstrip() != "]":
            yield line, Unexpected(f'expected a JSON array that ends with "]", but {problem}')


def _cells(line: str) -> list[str]:
    return next(csv.reader([line], skipinitialspace=True))


def _before_cut(pieces: Iterator[str], cut: list[CutShort]) -> Iterator[str]:
    """All pieces that there are; then ``cut`` has the error, if one ended them."""
    try:
        yield from pieces
    except CutShort as error:
        cut.append(error)


def _joined(pieces: Iterator[str], characters: int) -> str:
    """The next pieces, together that long or longer; fewer at the end."""
    joined: list[str] = []
    length = 0
    for piece in pieces:
        joined.append(piece)
        length += len(piece)
        if length >= characters:
            break
    return "".join(joined)
