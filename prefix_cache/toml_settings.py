"""What the config files of node and router have in common: TOML, and values of the right type."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec

from prefix_cache.errors import InvalidArgument, MalformedFile

_EXPECTED = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple[str, ...]: "an array of strings",
    dict[str, Any]: "a table",
}


def read_toml(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the text of a file and what it holds.

    Raises MalformedFile for what is no TOML, OSError for what cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return text, tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedFile(f"{path} is no TOML: {error}", path=path) from None


def checked(name: str, value: object, kind: Any, /, **details: object) -> Any:
    """Return ``value`` as a ``kind``.

    Raises InvalidArgument with ``details``, whose message says what ``name`` is.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise InvalidArgument(
            f"{name} is {value!r}, expected {_EXPECTED[kind]}", **details
        ) from None
