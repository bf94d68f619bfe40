"""Settings of a node from a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from prefix_cache.errors import InvalidArgument, MalformedFile
from prefix_cache.node.config import NodeConfig

_EXPECTED = {
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    tuple[str, ...]: "an array of strings",
}


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of ``NodeConfig`` that the file names, by name.

    Raises ``MalformedFile`` for what is no TOML, and ``InvalidArgument`` for a key that is no
    setting or a value of another type.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedFile(f"{path} is no TOML: {error}", path=path) from None
    types = get_type_hints(NodeConfig)
    return {name: _checked(path, types, name, value) for name, value in table.items()}


def _checked(path: Path, types: dict[str, Any], name: str, value: object) -> Any:
    if name not in types:
        raise InvalidArgument(
            f"{path}: {name!r} is no setting, expected one of {', '.join(sorted(types))}",
            path=path,
            name=name,
        )
    try:
        return msgspec.convert(value, types[name])
    except msgspec.ValidationError:
        raise InvalidArgument(
            f"{path}: {name} is {value!r}, expected {_EXPECTED[types[name]]}",
            path=path,
            name=name,
            value=repr(value),
        ) from None
