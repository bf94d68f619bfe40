"""What ``prefix-cache top`` says of one node, out of its stats now and before."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from prefix_cache.index.results import Stats


@dataclass(frozen=True)
class Reading:
    """Stats of a node at a time in seconds, or the ``error`` that asking for them gave."""

    address: str
    at: float
    stats: Stats | None = None
    error: str = ""


@dataclass(frozen=True)
class Rates:
    """Shares of 1 and changes per second; None where there is nothing to divide."""

    hit_rate: float | None
    hit_rate_now: float | None
    query_tokens_per_s: float | None
    evictions_per_s: float | None


def rates(now: Reading, before: Reading | None) -> Rates:
    """Return the rates in all, and those since the reading ``before``."""
    if now.stats is None:
        return Rates(None, None, None, None)
    stats = now.stats
    in_all = _share(stats.hit_tokens, stats.query_tokens)
    earlier = before.stats if before else None
    if before is None or earlier is None or _restarted(stats, earlier):
        return Rates(in_all, None, None, None)
    queries = stats.query_tokens - earlier.query_tokens
    seconds = now.at - before.at
    return Rates(
        hit_rate=in_all,
        hit_rate_now=_share(stats.hit_tokens - earlier.hit_tokens, queries),
        query_tokens_per_s=_share(queries, seconds),
        evictions_per_s=_share(stats.evicted_blocks - earlier.evicted_blocks, seconds),
    )


def as_json(now: Reading, before: Reading | None) -> dict[str, Any]:
    """Return one object for one node."""
    if now.stats is None:
        return {"node": now.address, "error": now.error}
    return {"node": now.address} | asdict(now.stats) | asdict(rates(now, before))


def _restarted(now: Stats, before: Stats) -> bool:
    """Whether a counter went back, as only those of a node that began anew do."""
    return (
        now.query_tokens < before.query_tokens
        or now.hit_tokens < before.hit_tokens
        or now.evicted_blocks < before.evicted_blocks
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None
