"""The index: an exact map from token prefixes to the KV blocks that hold them."""

from prefix_cache.index.cache import BlockCache
from prefix_cache.index.diagnosis import Explanation, Reason, ReasonKind
from prefix_cache.index.events import BlocksRemoved, BlocksStored, Cleared, Event
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.identity import Identity
from prefix_cache.index.results import NO_COPIES, Appended, Copies, Match, Prefix, Stats
from prefix_cache.index.sequence import Sequence
from prefix_cache.index.snapshot import Snapshot

__all__ = [
    "NO_COPIES",
    "Appended",
    "BlockCache",
    "BlocksRemoved",
    "BlocksStored",
    "Cleared",
    "Copies",
    "Event",
    "Explanation",
    "ExtraKey",
    "Identity",
    "Match",
    "Prefix",
    "Reason",
    "ReasonKind",
    "Sequence",
    "Snapshot",
    "Stats",
]
