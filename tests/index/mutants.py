"""The model with one rule broken each: what the state machine must be able to notice.

The list is of faults that block managers really had.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

from prefix_cache import Identity
from prefix_cache.errors import PoolExhausted

from .model import ModelSequence
from .records import ExtraKey, Key, Stored
from .tiered_model import TieredModel


class EvictsHeadFirst(TieredModel):
    def eviction_order(self, key: Key) -> tuple[int, int]:
        return self.stamps[key], len(key.blocks)


class HitsDoNotRefresh(TieredModel):
    def refresh(self, sequence: ModelSequence) -> None:
        for key in sequence.path:
            self.stamps.setdefault(key, self.releases)


class EvictsTheMostRecent(TieredModel):
    def eviction_order(self, key: Key) -> tuple[int, int]:
        return -self.stamps[key], -len(key.blocks)


class EvictsBlocksInUse(TieredModel):
    def evictable(self, pinned: Collection[Key] = ()) -> list[Key]:
        return [key for key in self.cached if key in self.stamps]


class FailedAcquireKeepsItsPins(TieredModel):
    def acquire(
        self,
        who: Identity,
        tokens: Sequence[int],
        extra_keys: Iterable[ExtraKey],
        load: bool = True,
    ) -> ModelSequence:
        extra_keys = tuple(extra_keys)
        path = self.find(who, tokens, extra_keys)
        try:
            return super().acquire(who, tokens, extra_keys, load)
        except Exception:
            self.leaked = [*getattr(self, "leaked", []), *path]
            raise

    def evictable(self, pinned: Collection[Key] = ()) -> list[Key]:
        return super().evictable([*pinned, *getattr(self, "leaked", [])])


class FailedAcquireCounts(TieredModel):
    def acquire(
        self,
        who: Identity,
        tokens: Sequence[int],
        extra_keys: Iterable[ExtraKey],
        load: bool = True,
    ) -> ModelSequence:
        try:
            return super().acquire(who, tokens, extra_keys, load)
        except PoolExhausted:
            self.query_tokens += len(tokens)
            raise


class GivesBackHeadLast(TieredModel):
    def give_back(self, blocks: list[int]) -> None:
        self.free.extend(blocks)


class NoCopyOnWrite(TieredModel):
    def must_copy_tail(self, sequence: ModelSequence) -> bool:
        return False


class LastOwnerCopiesToo(TieredModel):
    def must_copy_tail(self, sequence: ModelSequence) -> bool:
        return sequence.num_tokens % self.block_size != 0


class ForksAdvanceAlone(TieredModel):
    def sharers(self, sequence: ModelSequence, index: int) -> list[ModelSequence]:
        return [sequence]

    def must_copy_tail(self, sequence: ModelSequence) -> bool:
        shared = len(super().sharers(sequence, len(sequence.block_table) - 1)) > 1
        return shared and sequence.num_tokens % self.block_size != 0


class DuplicateReplacesTheCopy(TieredModel):
    def publish(self, key: Key, block: int) -> bool:
        self.cached[key] = block
        return True


class DuplicateIsAnnounced(TieredModel):
    def publish(self, key: Key, block: int) -> bool:
        super().publish(key, block)
        return True


class PublishesBeforeWritten(TieredModel):
    def acquire(
        self,
        who: Identity,
        tokens: Sequence[int],
        extra_keys: Iterable[ExtraKey],
        load: bool = True,
    ) -> ModelSequence:
        sequence = super().acquire(who, tokens, extra_keys, load)
        for i in range(len(sequence.path), self.findable_blocks(sequence, sequence.num_tokens)):
            key = self.key(sequence.who, sequence.tokens, sequence.extra_keys, i)
            if self.publish(key, sequence.block_table[i]):
                self.on_event(Stored((key,)))
            sequence.path.append(key)
        return sequence


class FullHitLeavesNothingToCompute(TieredModel):
    def most_hit_blocks(self, num_tokens: int) -> int:
        return num_tokens // self.block_size


class IgnoresTheAdapter(TieredModel):
    def key(
        self, who: Identity, tokens: Sequence[int], extra_keys: tuple[ExtraKey, ...], index: int
    ) -> Key:
        return super().key(replace(who, adapter=""), tokens, extra_keys, index)


class IgnoresExtraKeys(TieredModel):
    def clipped(
        self, extra_keys: tuple[ExtraKey, ...], index: int
    ) -> frozenset[tuple[int, int, bytes]]:
        return frozenset()


class ReusesUnknownContent(TieredModel):
    def reusable_blocks(self, extra_keys: tuple[ExtraKey, ...], limit: int) -> int:
        return limit


ALL: tuple[type[TieredModel], ...] = (
    EvictsHeadFirst,
    HitsDoNotRefresh,
    EvictsTheMostRecent,
    EvictsBlocksInUse,
    FailedAcquireKeepsItsPins,
    FailedAcquireCounts,
    GivesBackHeadLast,
    NoCopyOnWrite,
    LastOwnerCopiesToo,
    ForksAdvanceAlone,
    DuplicateReplacesTheCopy,
    DuplicateIsAnnounced,
    PublishesBeforeWritten,
    FullHitLeavesNothingToCompute,
    IgnoresTheAdapter,
    IgnoresExtraKeys,
    ReusesUnknownContent,
)

# Those that hand out KV of others, or none at all: the worker's memory alone shows it.
UNSAFE: tuple[type[TieredModel], ...] = (
    EvictsBlocksInUse,
    NoCopyOnWrite,
    PublishesBeforeWritten,
    IgnoresTheAdapter,
    IgnoresExtraKeys,
    ReusesUnknownContent,
)
