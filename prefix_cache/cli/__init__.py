"""The command ``prefix-cache``."""

from prefix_cache.cli.commands import main

__all__ = ["main"]
