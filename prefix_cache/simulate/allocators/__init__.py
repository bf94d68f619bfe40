"""Ways to manage KV memory: three contiguous ones, and paging."""

from prefix_cache.simulate.allocators.allocator import Allocator, Holding, Usage
from prefix_cache.simulate.allocators.contiguous import oracle, pow2, reserve_max
from prefix_cache.simulate.allocators.paged import Paged

CONTIGUOUS = {"reserve_max": reserve_max, "pow2": pow2, "oracle": oracle}
"""By name: what makes one of so many slots, for requests of at most so many tokens."""

ALLOCATORS = (*CONTIGUOUS, "paged")

__all__ = ["ALLOCATORS", "CONTIGUOUS", "Allocator", "Holding", "Paged", "Usage"]
