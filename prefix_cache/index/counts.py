"""What a cache has counted so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counts:
    """As in ``Stats``."""

    query_tokens: int = 0
    hit_tokens: int = 0
    loaded_tokens: int = 0
    recomputed_tokens: int = 0
    evicted_blocks: int = 0
    offloaded_blocks: int = 0
    rejected_offloads: int = 0
