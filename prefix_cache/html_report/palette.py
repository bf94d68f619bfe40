"""Colours of a plot that the page decides: drawn as a stand-in, shown as a CSS variable.

So one drawing serves light and dark pages.  The values of the variables stand in ``page.css``.
"""

from __future__ import annotations

import re

NUM_SERIES = 8

_NAMES = ("ink", "muted", "rule", "surface", *(f"series-{n}" for n in range(NUM_SERIES)))
_STAND_INS = {name: f"#0102{number:02x}" for number, name in enumerate(_NAMES, start=1)}
_VARIABLES = {stand_in: f"var(--{name})" for name, stand_in in _STAND_INS.items()}
_ANY_STAND_IN = re.compile("|".join(_VARIABLES))

INK, MUTED, RULE, SURFACE = (_STAND_INS[name] for name in _NAMES[:4])


def series(number: int) -> str:
    """Return the stand-in for the colour of a series; they repeat after ``NUM_SERIES``."""
    return _STAND_INS[f"series-{number % NUM_SERIES}"]


def with_variables(svg: str) -> str:
    """Return the drawing with every stand-in replaced by its CSS variable."""
    return _ANY_STAND_IN.sub(lambda found: _VARIABLES[found[0]], svg)
