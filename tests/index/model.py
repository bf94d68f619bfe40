"""The index as its rules say it, block by block and slowly: what the real one is measured against.

A block is named by all that its KV depends on (``Key``), never by a hash.  Every answer is worked
out afresh from a dict per block, so that each rule stands in one place and can be broken alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field

from prefix_cache import Identity
from prefix_cache.errors import (
    CommitBeyondTokens,
    InvalidTokens,
    PoolExhausted,
    PromptTooLarge,
    ReleasedSequence,
    SequencesLive,
)

from .records import (
    NO_COPIES,
    Appended,
    Block,
    Copies,
    Emptied,
    Event,
    ExtraKey,
    Hit,
    Key,
    Removed,
    Stats,
    Stored,
)


@dataclass(eq=False)
class ModelSequence:
    who: Identity
    tokens: list[int]
    extra_keys: tuple[ExtraKey, ...]
    block_table: list[int]
    path: list[Key]  # the cached blocks under which the committed full blocks lie
    num_cached_tokens: int
    num_committed_tokens: int
    num_loaded_tokens: int = 0
    copies: Copies = NO_COPIES

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)


@dataclass
class NaiveModel:
    """Answers like a ``BlockCache``; its events carry keys instead of hashes."""

    num_blocks: int
    block_size: int
    on_event: Callable[[Event], None]
    free: list[int] = field(init=False)  # a stack
    cached: dict[Key, int] = field(default_factory=dict)
    stamps: dict[Key, int] = field(default_factory=dict)  # the last release that passed the block
    live: list[ModelSequence] = field(default_factory=list)
    releases: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    evicted_blocks: int = 0

    def __post_init__(self) -> None:
        self.free = self.all_blocks()

    # --- the calls --------------------------------------------------------------------------

    def match(self, who: Identity, tokens: Sequence[int], extra_keys: Iterable[ExtraKey]) -> Hit:
        path = self.find(who, tokens, tuple(extra_keys))
        return Hit(len(path) * self.block_size, [self.cached[key] for key in path])

    def acquire(
        self, who: Identity, tokens: Sequence[int], extra_keys: Iterable[ExtraKey]
    ) -> ModelSequence:
        if not tokens:
            raise InvalidTokens("empty prompt")
        extra_keys = tuple(extra_keys)
        path = self.find(who, tokens, extra_keys)
        table = [self.cached[key] for key in path]
        total = self.blocks_for(len(tokens))
        self.refuse_too_large(total)
        table += self.take(total - len(path), pinned=path)
        hit = len(path) * self.block_size
        self.query_tokens += len(tokens)
        self.hit_tokens += hit
        sequence = ModelSequence(who, list(tokens), extra_keys, table, path, hit, hit)
        self.live.append(sequence)
        return sequence

    def commit(self, sequence: ModelSequence, num_tokens: int) -> None:
        self.refuse_released(sequence)
        if num_tokens > sequence.num_tokens:
            raise CommitBeyondTokens("", num_tokens=num_tokens, sequence_tokens=sequence.num_tokens)
        if num_tokens <= sequence.num_committed_tokens:
            return
        sequence.num_committed_tokens = num_tokens
        stored = []
        for i in range(len(sequence.path), self.findable_blocks(sequence, num_tokens)):
            key = self.key(sequence.who, sequence.tokens, sequence.extra_keys, i)
            if self.publish(key, sequence.block_table[i]):
                stored.append(key)
            for sharer in self.sharers(sequence, i):
                sharer.path.append(key)
                reached = (i + 1) * self.block_size
                sharer.num_committed_tokens = max(sharer.num_committed_tokens, reached)
        if stored:
            self.on_event(Stored(tuple(stored)))

    def append(self, sequence: ModelSequence, token_ids: Sequence[int]) -> Appended:
        self.refuse_released(sequence)
        total = self.blocks_for(sequence.num_tokens + len(token_ids))
        self.refuse_too_large(total)
        copies = 1 if token_ids and self.must_copy_tail(sequence) else 0
        taken = self.take(copies + total - len(sequence.block_table))
        source = sequence.block_table[-1]
        if copies:
            sequence.block_table[-1] = taken[0]
        sequence.block_table += taken[copies:]
        sequence.tokens += token_ids
        return Appended(tuple(taken[copies:]), ((source, taken[0]),) if copies else ())

    def fork(self, sequence: ModelSequence) -> ModelSequence:
        self.refuse_released(sequence)
        child = ModelSequence(
            sequence.who,
            list(sequence.tokens),
            sequence.extra_keys,
            list(sequence.block_table),
            list(sequence.path),
            sequence.num_cached_tokens,
            sequence.num_committed_tokens,
        )
        self.live.append(child)
        return child

    def release(self, sequence: ModelSequence) -> None:
        self.refuse_released(sequence)
        self.live.remove(sequence)
        self.releases += 1
        self.refresh(sequence)
        held = self.held_blocks() | set(self.cached.values())
        self.give_back([block for block in sequence.block_table if block not in held])

    def reset(self) -> None:
        if self.live:
            raise SequencesLive("")
        self.cached.clear()
        self.stamps.clear()
        self.free = self.all_blocks()
        self.on_event(Emptied())

    def stats(self) -> Stats:
        return Stats(
            num_blocks=self.num_blocks,
            free=len(self.free),
            cached=len(self.cached),
            private=len(self.held_blocks() - set(self.cached.values())),
            evictable=len(self.evictable()),
            live_sequences=len(self.live),
            query_tokens=self.query_tokens,
            hit_tokens=self.hit_tokens,
            evicted_blocks=self.evicted_blocks,
        )

    def audit(self) -> None:
        blocks = [*self.free, *self.cached.values()]
        blocks += self.held_blocks() - set(self.cached.values())
        assert sorted(blocks) == list(range(self.num_blocks))

    # --- what a block is --------------------------------------------------------------------

    def key(
        self, who: Identity, tokens: Sequence[int], extra_keys: tuple[ExtraKey, ...], index: int
    ) -> Key:
        """Key of the full block ``index`` of a sequence."""
        size = self.block_size
        return Key(
            who,
            tuple(
                Block(tuple(tokens[i * size : (i + 1) * size]), self.clipped(extra_keys, i))
                for i in range(index + 1)
            ),
        )

    def clipped(
        self, extra_keys: tuple[ExtraKey, ...], index: int
    ) -> frozenset[tuple[int, int, bytes]]:
        first, last = index * self.block_size, (index + 1) * self.block_size
        return frozenset(
            (max(start, first) - first, (last if end is None else min(end, last)) - first, key)
            for start, end, key in extra_keys
            if key is not None and start < last and (end is None or end > first)
        )

    def reusable_blocks(self, extra_keys: tuple[ExtraKey, ...], limit: int) -> int:
        """Of the first ``limit`` blocks, those before the first key that is None."""
        return min(
            [limit, *(start // self.block_size for start, _, key in extra_keys if key is None)]
        )

    def findable_blocks(self, sequence: ModelSequence, num_tokens: int) -> int:
        """Full blocks that can be found once ``num_tokens`` are committed."""
        return self.reusable_blocks(sequence.extra_keys, num_tokens // self.block_size)

    def find(
        self, who: Identity, tokens: Sequence[int], extra_keys: tuple[ExtraKey, ...]
    ) -> list[Key]:
        """Longest cached chain that leaves at least one token to compute."""
        path = []
        for i in range(self.reusable_blocks(extra_keys, self.most_hit_blocks(len(tokens)))):
            key = self.key(who, tokens, extra_keys, i)
            if key not in self.cached:
                break
            path.append(key)
        return path

    def most_hit_blocks(self, num_tokens: int) -> int:
        return max(num_tokens - 1, 0) // self.block_size

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    # --- who holds what ---------------------------------------------------------------------

    def held_blocks(self) -> set[int]:
        return {block for sequence in self.live for block in sequence.block_table}

    def sharers(self, sequence: ModelSequence, index: int) -> list[ModelSequence]:
        """Live sequences, this one included, with the same physical block at this position."""
        block = sequence.block_table[index]
        return [other for other in self.live if other.block_table[index : index + 1] == [block]]

    def must_copy_tail(self, sequence: ModelSequence) -> bool:
        partial = sequence.num_tokens % self.block_size != 0
        return partial and len(self.sharers(sequence, len(sequence.block_table) - 1)) > 1

    def publish(self, key: Key, block: int) -> bool:
        """Make the block findable, unless an equal one is; says whether it did."""
        return self.cached.setdefault(key, block) == block

    # --- the pool ---------------------------------------------------------------------------

    def all_blocks(self) -> list[int]:
        return list(reversed(range(self.num_blocks)))

    def take(self, needed: int, pinned: Collection[Key] = ()) -> list[int]:
        """Free blocks first, then evicted ones; all or nothing."""
        available = len(self.free) + len(self.evictable(pinned))
        if needed > available:
            raise PoolExhausted("", needed=needed, available=available)
        taken: list[int] = []
        removed: list[Key] = []
        for _ in range(needed):
            if self.free:
                taken.append(self.free.pop())
            else:
                victim = min(self.evictable(pinned), key=self.eviction_order)
                taken.append(self.cached[victim])
                removed += self.evict(victim)
                self.evicted_blocks += 1
        if removed:
            self.on_event(Removed(tuple(removed)))
        return taken

    def evict(self, victim: Key) -> list[Key]:
        """Take a block's memory away; what cannot be found any more for that."""
        del self.cached[victim]
        return [victim]

    def give_back(self, blocks: list[int]) -> None:
        """The next takes give them in table order."""
        self.free.extend(reversed(blocks))

    def refresh(self, sequence: ModelSequence) -> None:
        """Stamp what the released sequence used."""
        for key in sequence.path:
            self.stamps[key] = self.releases

    def evictable(self, pinned: Collection[Key] = ()) -> list[Key]:
        used = {key for sequence in self.live for key in sequence.path} | set(pinned)
        return [key for key in self.cached if key not in used]

    def eviction_order(self, key: Key) -> tuple[int, int]:
        """Least recently released first; of one release, the deepest first."""
        return self.stamps[key], -len(key.blocks)

    # --- what is refused --------------------------------------------------------------------

    def refuse_released(self, sequence: ModelSequence) -> None:
        if sequence not in self.live:
            raise ReleasedSequence("")

    def refuse_too_large(self, needed: int) -> None:
        if needed > self.num_blocks:
            raise PromptTooLarge("", needed=needed, num_blocks=self.num_blocks)
