"""Settings of a router from a TOML file.

Its keys are the fields of `RouterConfig`, and in tables ``[pools.NAME]`` those of `PoolConfig`.
The nodes of a pool are a table of ``NAME = "ADDRESS"``, ``"URL"`` or ``"ADDRESS,URL"``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, get_type_hints

from prefix_cache.errors import InvalidArgument
from prefix_cache.toml_settings import checked, read_toml
from router.config import NodeSpec, PoolConfig, RouterConfig

Setting = tuple[str, ...]
"""Path of a value in the file, such as ("pools", "chat", "policy")."""


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file of settings; fields of ``RouterConfig`` in ``given`` win over what it says."""

    path: Path
    given: Mapping[str, Any] = field(default_factory=dict)

    def read(self) -> RouterConfig:
        """Return what the file says now.

        Raises MalformedFile for what is no TOML, OSError for what cannot be read, and else
        InvalidArgument, which names the file, the line and the setting.
        """
        text, table = read_toml(self.path)
        try:
            return self._config(table)
        except InvalidArgument as error:
            setting = error.details.get("setting", ())
            assert isinstance(setting, tuple)
            if setting and setting[0] in self.given:
                raise
            line = _line_of(text, setting)
            raise InvalidArgument(
                f"{self.path}, line {line}: {error}", path=self.path, line=line, **error.details
            ) from None

    def _config(self, table: dict[str, Any]) -> RouterConfig:
        pools = _checked((), "pools", table.pop("pools", {}), dict[str, Any])
        settings = _settings((), table, _types(RouterConfig, but=("pools",)), also=("pools",))
        settings["pools"] = tuple(_pool(name, pool) for name, pool in pools.items())
        return RouterConfig(**{**settings, **self.given})


def _pool(name: str, value: object) -> PoolConfig:
    where = ("pools", name)
    table = _checked(("pools",), name, value, dict[str, Any])
    nodes = _checked(where, "nodes", table.pop("nodes", {}), dict[str, Any])
    settings = _settings(where, table, _types(PoolConfig, but=("name", "nodes")), also=("nodes",))
    specs = tuple(_node((*where, "nodes"), node, places) for node, places in nodes.items())
    pool = PoolConfig(name=name, nodes=specs, **settings)
    if not pool.has_source:
        raise InvalidArgument(
            f"the pool {name!r} can have no node, expected one of nodes, dns and registry",
            setting=where,
        )
    return pool


def _node(where: Setting, name: str, value: object) -> NodeSpec:
    places = _checked(where, name, value, str)
    try:
        return NodeSpec.parse(name, places)
    except InvalidArgument as error:
        setting = (*where, name)
        raise InvalidArgument(f"{'.'.join(setting)}: {error}", setting=setting) from None


def _types(config: type, *, but: Iterable[str]) -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(config).items() if name not in but}


def _settings(
    where: Setting, table: Mapping[str, object], types: Mapping[str, Any], *, also: Setting = ()
) -> dict[str, Any]:
    for name in table:
        if name not in types:
            raise _unknown((*where, name), (*types, *also))
    return {name: _checked(where, name, value, types[name]) for name, value in table.items()}


def _unknown(setting: Setting, known: Iterable[str]) -> InvalidArgument:
    known = sorted(known)
    close = get_close_matches(setting[-1], known, n=1)
    expected = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known)}"
    return InvalidArgument(f"{'.'.join(setting)} is no setting, {expected}", setting=setting)


def _checked(where: Setting, name: str, value: object, kind: Any) -> Any:
    setting = (*where, name)
    return checked(".".join(setting), value, kind, setting=setting)


def _line_of(text: str, setting: Setting) -> int:
    """Return the line where the value begins, or the last table above it that is in the file.

    The first lines that are TOML and hold the value end where the value does, and the ones
    before that are TOML end where it begins.  Only errors cost that much reading.
    """
    lines = text.split("\n")
    for depth in range(len(setting), 0, -1):
        begin = 1
        for end in range(1, len(lines) + 1):
            try:
                table = tomllib.loads("\n".join(lines[:end]))
            except tomllib.TOMLDecodeError:  # in the middle of a value
                continue
            if _holds(table, setting[:depth]):
                return begin
            begin = end + 1
    return 1


def _holds(table: object, setting: Setting) -> bool:
    for name in setting:
        if not (isinstance(table, dict) and name in table):
            return False
        table = table[name]
    return True
