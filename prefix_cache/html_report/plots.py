"""What a plot shows, without saying how it is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from prefix_cache.errors import InvalidArgument

LineStyle = Literal["-", "--", "steps"]


@dataclass(frozen=True)
class Line:
    """``y`` over ``x``, two sequences of one length; ``steps`` keeps each y until the next x.

    Raises InvalidArgument for sequences of different lengths.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: LineStyle = "-"
    marks: bool = False

    def __post_init__(self) -> None:
        if len(self.x) != len(self.y):
            raise InvalidArgument(
                f"line {self.name!r} has {len(self.x)} x and {len(self.y)} y: expected as many"
            )


@dataclass(frozen=True)
class LinePlot:
    """Lines over one x axis; ``y_percent``: y are shares from 0 to 1, shown as percentages.

    ``verticals`` mark an x each: position and label; those beyond the lines are left out.
    """

    title: str
    x_label: str
    y_label: str
    lines: Sequence[Line]
    log_x: bool = False
    log_y: bool = False
    y_percent: bool = False
    verticals: Sequence[tuple[float, str]] = ()

    @property
    def legend(self) -> list[tuple[str, bool]]:
        """Name of each line, and whether it is dashed."""
        return [(line.name, line.style == "--") for line in self.lines]


@dataclass(frozen=True)
class BarPlot:
    """Bars in groups: ``parts`` has a value per group for each part, stacked or side by side.

    Raises InvalidArgument for a part with more or fewer values than there are groups.
    """

    title: str
    y_label: str
    groups: Sequence[str]
    parts: Mapping[str, Sequence[float]]
    stacked: bool = True
    y_percent: bool = False

    def __post_init__(self) -> None:
        for name, values in self.parts.items():
            if len(values) != len(self.groups):
                raise InvalidArgument(
                    f"part {name!r} has {len(values)} values: expected {len(self.groups)}, "
                    "one per group"
                )

    @property
    def legend(self) -> list[tuple[str, bool]]:
        """Name of each part; none is dashed."""
        return [(name, False) for name in self.parts]
