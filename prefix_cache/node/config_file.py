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
    """Return the settings of ``NodeConfig`` that the file holds, by their names there.

    A key is the name of the command's option, with ``_`` for ``-``: a setting's name without the
    unit.  Raises ``MalformedFile`` for what is no TOML, and ``InvalidArgument`` for a key that is
    no setting or a value of another type.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise MalformedFile(f"{path} is no TOML: {error}", path=path) from None
    types = get_type_hints(NodeConfig)
    names = {name.removesuffix("_s"): name for name in types}
    settings = {}
    for key, value in table.items():
        if key not in names:
            raise InvalidArgument(
                f"{path}: {key!r} is no setting, expected one of {', '.join(sorted(names))}",
                path=path,
                name=key,
            )
        settings[names[key]] = _checked(path, types[names[key]], key, value)
    return settings


def _checked(path: Path, kind: Any, key: str, value: object) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        raise InvalidArgument(
            f"{path}: {key} is {value!r}, expected {_EXPECTED[kind]}",
            path=path,
            name=key,
            value=repr(value),
        ) from None
