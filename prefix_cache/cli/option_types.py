"""What options of several commands accept."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import click

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
COUNT = click.IntRange(min=1)
# What the index accepts.
NUM_BLOCKS = click.IntRange(1, 2**31 - 1)
BLOCK_SIZE = click.IntRange(1, 2**20)


class SecondsRange(click.FloatRange):
    """A range that holds no nan, which is on neither side of a limit."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds that ``value`` says; fails for what is out of range."""
        seconds: float = super().convert(value, param, ctx)
        if math.isnan(seconds):
            self.fail(f"{value} is no number of seconds.", param, ctx)
        return seconds
