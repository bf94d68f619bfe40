"""A prefix cache for LLM inference: keep KV blocks, find them again, know what it saved."""

from __future__ import annotations

# Not from typing, which takes long to load: the command line cannot heed Ctrl-C until this has.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from prefix_cache.errors import PoolExhausted, PrefixCacheError
    from prefix_cache.index import BlockCache, ExtraKey, Identity, Prefix, Sequence

__version__ = "0.1.0"

__all__ = [
    "BlockCache",
    "ExtraKey",
    "Identity",
    "PoolExhausted",
    "Prefix",
    "PrefixCacheError",
    "Sequence",
]

if not TYPE_CHECKING:  # mypy would take any name for one of ours

    def __getattr__(name: str) -> object:
        """Load the errors, or the index and with it numpy, for who asks for them."""
        from importlib import import_module

        if name not in (*__all__, "errors"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        errors = import_module("prefix_cache.errors")
        if name == "errors":
            return errors
        if hasattr(errors, name):
            return getattr(errors, name)
        return getattr(import_module("prefix_cache.index"), name)
