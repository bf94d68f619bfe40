"""Settings of a node from a TOML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

from prefix_cache.errors import InvalidArgument
from prefix_cache.node.config import NodeConfig
from prefix_cache.toml_settings import checked, read_toml


def read_settings(path: Path) -> dict[str, Any]:
    """Return the settings of ``NodeConfig`` that the file holds, by their names there.

    A key is the name of the command's option, with ``_`` for ``-``: a setting's name without the
    unit.  Raises ``MalformedFile`` for what is no TOML, and ``InvalidArgument`` for a key that is
    no setting or a value of another type.
    """
    _, table = read_toml(path)
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
        settings[names[key]] = checked(
            f"{path}: {key}", value, types[names[key]], path=path, name=key, value=repr(value)
        )
    return settings
