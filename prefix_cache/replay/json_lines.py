"""Files of JSON lines, plain or gzip, read line by line."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prefix_cache.errors import MalformedFile


class Unexpected(Exception):
    """What is wrong with the value of a line, and what was expected."""


def malformed(path: Path, problem: str, line: int | None = None) -> MalformedFile:
    """Return the error that names the file, the line (from 1) and the problem."""
    place = f"{path}, line {line}" if line else str(path)
    return MalformedFile(f"{place}: {problem}", file=str(path), line=line)


def numbered_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and content of the lines that are not blank.

    Raises MalformedFile for a file that cannot be read or unpacked.
    """
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise malformed(path, f"no whole gzip stream ({error})", number + 1) from None
    except OSError as error:
        raise malformed(path, f"cannot be read ({error.strerror})") from None


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
