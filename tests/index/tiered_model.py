"""The naive model with a host tier, slot by slot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from prefix_cache import Identity
from prefix_cache.errors import CopyPending, UnknownCopy

from .model import ModelSequence, NaiveModel
from .records import NO_COPIES, Appended, Copies, ExtraKey, Hit, Key, Removed, Stats


@dataclass
class TieredModel(NaiveModel):
    """A block is cached on the GPU, as ``cached`` says, or on the host, as ``hosted`` does."""

    host_blocks: int = 0
    free_slots: list[int] = field(init=False)  # a stack
    hosted: dict[Key, int] = field(default_factory=dict)
    pending: dict[int, Copies] = field(default_factory=dict)
    opened_copies: int = 0
    loaded_tokens: int = 0
    offloaded_blocks: int = 0
    rejected_offloads: int = 0
    # Of the running call: what it offloads, by slot, and the slots it loads from.
    offloads: dict[int, int] = field(default_factory=dict)
    sources: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.free_slots = self.all_slots()

    # --- the calls --------------------------------------------------------------------------

    def match(self, who: Identity, tokens: Sequence[int], extra_keys: Iterable[ExtraKey]) -> Hit:
        hit = super().match(who, tokens, extra_keys)
        on_host = len(self.find_on_host(who, tokens, tuple(extra_keys))) * self.block_size
        return Hit(hit.num_cached_tokens + on_host, hit.block_ids, on_host)

    def acquire(
        self,
        who: Identity,
        tokens: Sequence[int],
        extra_keys: Iterable[ExtraKey],
        load: bool = True,
    ) -> ModelSequence:
        path = self.find_on_host(who, tokens, tuple(extra_keys)) if load else []
        self.sources = [self.hosted[key] for key in path]
        try:
            sequence = super().acquire(who, tokens, extra_keys)
        finally:
            loads, self.sources = self.sources, []
        first = len(sequence.path)
        targets = sequence.block_table[first : first + len(loads)]
        sequence.copies = self.open_copies(tuple(zip(loads, targets, strict=True)))
        sequence.num_loaded_tokens = len(loads) * self.block_size
        sequence.num_cached_tokens += sequence.num_loaded_tokens
        self.hit_tokens += sequence.num_loaded_tokens
        self.loaded_tokens += sequence.num_loaded_tokens
        return sequence

    def commit(self, sequence: ModelSequence, num_tokens: int) -> None:
        self.refuse_released(sequence)
        if sequence.num_committed_tokens < num_tokens <= sequence.num_tokens:
            self.refuse_while_loading(sequence)
        super().commit(sequence, num_tokens)

    def append(self, sequence: ModelSequence, token_ids: Sequence[int]) -> Appended:
        appended = super().append(sequence, token_ids)
        copies = self.open_copies(())
        return appended._replace(offloads=copies.offloads, copy_id=copies.copy_id)

    def fork(self, sequence: ModelSequence) -> ModelSequence:
        child = super().fork(sequence)
        child.num_loaded_tokens = sequence.num_loaded_tokens
        child.copies = sequence.copies
        return child

    def acknowledge(self, copy_id: int) -> None:
        self.refuse_unknown_copy(copy_id)
        self.end_copies(copy_id)

    def withdraw(self, copy_id: int) -> None:
        self.refuse_unknown_copy(copy_id)
        removed = []
        for _, slot in reversed(self.pending[copy_id].offloads):
            removed += self.drop_withdrawn(slot)
        self.end_copies(copy_id)
        if removed:
            self.on_event(Removed(tuple(removed)))

    def reset(self) -> None:
        super().reset()
        self.hosted.clear()
        self.pending.clear()
        self.free_slots = self.all_slots()

    def stats(self) -> Stats:
        return replace(
            super().stats(),
            host_blocks=self.host_blocks,
            host_free=len(self.free_slots),
            host_cached=len(self.hosted),
            loaded_tokens=self.loaded_tokens,
            offloaded_blocks=self.offloaded_blocks,
            rejected_offloads=self.rejected_offloads,
            pending_copies=len(self.pending),
        )

    # --- what goes from tier to tier --------------------------------------------------------

    def find_on_host(
        self, who: Identity, tokens: Sequence[int], extra_keys: tuple[ExtraKey, ...]
    ) -> list[Key]:
        """What goes on where the hit on the GPU ends, as far as it is known to be written."""
        path = []
        arriving = self.arriving_slots()
        limit = self.reusable_blocks(extra_keys, self.most_hit_blocks(len(tokens)))
        for i in range(len(self.find(who, tokens, extra_keys)), limit):
            key = self.key(who, tokens, extra_keys, i)
            if self.hosted.get(key) in {None, *arriving}:
                break
            path.append(key)
        return path

    def evict(self, victim: Key) -> list[Key]:
        """Move a block to the host, or drop it where there is no slot for it."""
        removed: list[Key] = []
        slot = self.take_slot(removed) if self.host_blocks else None
        block = self.cached.pop(victim)
        if slot is not None:
            self.hosted[victim] = slot
            self.offloads[slot] = block
            return removed
        self.rejected_offloads += bool(self.host_blocks)
        return [*removed, *self.drop_followers(victim), victim]

    def take_slot(self, removed: list[Key]) -> int | None:
        """Take a free slot, else that of the host's next victim, if there is one."""
        if self.free_slots:
            return self.free_slots.pop()
        busy = {*self.touched_slots(), *self.sources}
        for victim in sorted(self.hosted, key=self.host_eviction_order):
            if self.hosted[victim] not in busy and not self.followers(victim):
                removed.append(victim)
                return self.hosted.pop(victim)
        return None

    def host_eviction_order(self, key: Key) -> tuple[int, int]:
        return self.eviction_order(key)

    def followers(self, key: Key) -> list[Key]:
        """What follows a block on the host."""
        length = len(key.blocks)
        return [
            other
            for other in self.hosted
            if other.who == key.who
            and len(other.blocks) > length
            and other.blocks[:length] == key.blocks
        ]

    def drop_followers(self, key: Key) -> list[Key]:
        dropped = sorted(self.followers(key), key=self.eviction_order)
        for follower in dropped:
            self.give_up(self.hosted.pop(follower))
        return dropped

    def drop_withdrawn(self, slot: int) -> list[Key]:
        """Drop the block that was to be in a slot, if it still is to be, and what follows it."""
        for key in [key for key, its_slot in self.hosted.items() if its_slot == slot]:
            dropped = self.drop_followers(key)
            self.give_up(self.hosted.pop(key))
            return [*dropped, key]
        return []

    def publish(self, key: Key, block: int) -> bool:
        """Put the block in the place of an equal one on the host; that is no news."""
        if key in self.hosted:
            self.give_up(self.hosted.pop(key))
            self.cached[key] = block
            return False
        return super().publish(key, block)

    # --- copies -----------------------------------------------------------------------------

    def open_copies(self, loads: tuple[tuple[int, int], ...]) -> Copies:
        offloads, self.offloads = self.offloads, {}
        if not offloads and not loads:
            return NO_COPIES
        self.opened_copies += 1
        self.offloaded_blocks += len(offloads)
        copies = Copies(
            self.opened_copies, tuple((block, slot) for slot, block in offloads.items()), loads
        )
        self.pending[self.opened_copies] = copies
        return copies

    def end_copies(self, copy_id: int) -> None:
        """What the copies alone held becomes free."""
        copies = self.pending.pop(copy_id)
        slots = [slot for _, slot in copies.offloads] + [slot for slot, _ in copies.loads]
        for slot in slots:
            if slot not in self.hosted.values():
                self.give_up(slot)
        held = self.held_blocks() | set(self.cached.values())
        self.give_back([block for _, block in copies.loads if block not in held])

    def give_up(self, slot: int) -> None:
        """A slot holds nothing cached; it is free unless a copy touches it."""
        self.offloads.pop(slot, None)
        if slot not in self.touched_slots():
            self.free_slots.append(slot)

    def arriving_slots(self) -> set[int]:
        return {slot for copies in self.pending.values() for _, slot in copies.offloads}

    def touched_slots(self) -> set[int]:
        sources = {slot for copies in self.pending.values() for slot, _ in copies.loads}
        return sources | self.arriving_slots()

    def held_blocks(self) -> set[int]:
        loaded = {block for copies in self.pending.values() for _, block in copies.loads}
        return super().held_blocks() | loaded

    def all_slots(self) -> list[int]:
        return list(reversed(range(self.host_blocks)))

    # --- what is refused --------------------------------------------------------------------

    def refuse_while_loading(self, sequence: ModelSequence) -> None:
        if sequence.copies.loads and sequence.copies.copy_id in self.pending:
            raise CopyPending("", copy_id=sequence.copies.copy_id)

    def refuse_unknown_copy(self, copy_id: int) -> None:
        if copy_id not in self.pending:
            raise UnknownCopy("", copy_id=copy_id)
