"""The model with one rule of the host tier broken each: what the machine must be able to notice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prefix_cache import Identity

from .model import ModelSequence
from .records import ExtraKey, Key
from .tiered_model import TieredModel


class LoadsWhatIsNotWrittenYet(TieredModel):
    def arriving_slots(self) -> set[int]:
        return set()

    def touched_slots(self) -> set[int]:
        return super().touched_slots() | super().arriving_slots()


class TakesSlotsThatAreBeingRead(TieredModel):
    def touched_slots(self) -> set[int]:
        return self.arriving_slots()


class TakesSlotsThatAreBeingWritten(TieredModel):
    def touched_slots(self) -> set[int]:
        return super().touched_slots() - self.arriving_slots()


class FreesBlocksThatAreBeingLoaded(TieredModel):
    def held_blocks(self) -> set[int]:
        return {block for sequence in self.live for block in sequence.block_table}


class CommitsWhileLoading(TieredModel):
    def refuse_while_loading(self, sequence: ModelSequence) -> None:
        pass


class WithdrawnCopiesStayFindable(TieredModel):
    def drop_withdrawn(self, slot: int) -> list[Key]:
        return []


class WithdrawingLeavesAHole(TieredModel):
    def drop_withdrawn(self, slot: int) -> list[Key]:
        dropped = [key for key, its_slot in self.hosted.items() if its_slot == slot]
        for key in dropped:
            del self.hosted[key]
        return dropped


class RejectingLeavesAHole(TieredModel):
    def drop_followers(self, key: Key) -> list[Key]:
        return []


class HostEvictsTheMostRecent(TieredModel):
    def host_eviction_order(self, key: Key) -> tuple[int, int]:
        return -self.stamps[key], -len(key.blocks)


class HostRefusesWhenFull(TieredModel):
    def take_slot(self, removed: list[Key]) -> int | None:
        return self.free_slots.pop() if self.free_slots else None


class OffloadIsAnnounced(TieredModel):
    def evict(self, victim: Key) -> list[Key]:
        removed = super().evict(victim)
        return removed if victim in removed else [*removed, victim]


class KeepsTheHostCopy(TieredModel):
    def publish(self, key: Key, block: int) -> bool:
        if key in self.hosted:
            self.cached[key] = block
            return False
        return super().publish(key, block)


class AdoptionIsAnnounced(TieredModel):
    def publish(self, key: Key, block: int) -> bool:
        on_host = key in self.hosted
        return super().publish(key, block) or on_host


class LoadsThoughToldNotTo(TieredModel):
    def acquire(
        self,
        who: Identity,
        tokens: Sequence[int],
        extra_keys: Iterable[ExtraKey],
        load: bool = True,
    ) -> ModelSequence:
        return super().acquire(who, tokens, extra_keys)


class LoadedBlocksAreCached(TieredModel):
    """They would be shared with whoever matches, before they are written."""

    def acquire(
        self,
        who: Identity,
        tokens: Sequence[int],
        extra_keys: Iterable[ExtraKey],
        load: bool = True,
    ) -> ModelSequence:
        extra_keys = tuple(extra_keys)
        path = self.find_on_host(who, tokens, extra_keys) if load else []
        sequence = super().acquire(who, tokens, extra_keys, load)
        for key in path:
            self.publish(key, sequence.block_table[len(sequence.path)])
            sequence.path.append(key)
        return sequence


ALL: tuple[type[TieredModel], ...] = (
    LoadsWhatIsNotWrittenYet,
    TakesSlotsThatAreBeingRead,
    TakesSlotsThatAreBeingWritten,
    FreesBlocksThatAreBeingLoaded,
    CommitsWhileLoading,
    WithdrawnCopiesStayFindable,
    WithdrawingLeavesAHole,
    RejectingLeavesAHole,
    HostEvictsTheMostRecent,
    HostRefusesWhenFull,
    OffloadIsAnnounced,
    KeepsTheHostCopy,
    AdoptionIsAnnounced,
    LoadsThoughToldNotTo,
    LoadedBlocksAreCached,
)

# Those that hand out KV of others, or none at all: the worker's memory alone shows it.
UNSAFE: tuple[type[TieredModel], ...] = (
    LoadsWhatIsNotWrittenYet,
    TakesSlotsThatAreBeingRead,
    TakesSlotsThatAreBeingWritten,
    FreesBlocksThatAreBeingLoaded,
    WithdrawnCopiesStayFindable,
    LoadedBlocksAreCached,
)
