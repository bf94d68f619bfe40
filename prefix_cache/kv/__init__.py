"""The worker's half on torch: KV memory in blocks, its dtypes, and attention over it."""

from prefix_cache.errors import MissingExtra

try:
    import torch as _torch  # noqa: F401
except ImportError:
    raise MissingExtra(
        "KV memory needs the extra `torch`: pip install 'prefix-cache[torch]'", extra="torch"
    ) from None

from prefix_cache.kv.attention import paged_attention
from prefix_cache.kv.batch import PagedBatch, SequenceSlice
from prefix_cache.kv.calibration import Calibration
from prefix_cache.kv.layout import KVLayout
from prefix_cache.kv.pool import KVPool
from prefix_cache.kv.scales import Scales

__all__ = [
    "Calibration",
    "KVLayout",
    "KVPool",
    "PagedBatch",
    "Scales",
    "SequenceSlice",
    "paged_attention",
]
