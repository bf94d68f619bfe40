"""Shares for people: as a bar, as a percentage."""

from __future__ import annotations

from rich.text import Text

_WIDTH = 10
_EIGHTHS = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")


def bar(share: float, style: str = "green") -> Text:
    """Ten signs for a share from 0 to 1, in eighths of a sign."""
    full, eighths = divmod(int(8 * _WIDTH * share), 8)
    filled = "█" * full + _EIGHTHS[eighths]
    return Text(filled, style=style) + Text("·" * (_WIDTH - len(filled)), style="dim")


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage; a dash where there is none."""
    return "-" if share is None else f"{share:.{digits}%}"
