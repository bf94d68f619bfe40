"""Text of others, made safe to print."""

from __future__ import annotations


def printable(text: str) -> str:
    """Text on one line, with escapes for all that a terminal would act on or could be lost."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)
