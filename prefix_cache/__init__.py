"""A prefix cache for LLM inference: keep KV blocks, find them again, know what it saved."""

from prefix_cache.errors import PoolExhausted, PrefixCacheError
from prefix_cache.index import BlockCache, Identity, Sequence

__version__ = "0.1.0"

__all__ = ["BlockCache", "Identity", "PoolExhausted", "PrefixCacheError", "Sequence"]
