"""A prefix cache for LLM inference: keep KV blocks, find them again, know what it saved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefix_cache.errors import PoolExhausted, PrefixCacheError

if TYPE_CHECKING:
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
        """Load the index, and with it numpy, for who asks for it; the command line starts fast."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from prefix_cache import index

        return getattr(index, name)
