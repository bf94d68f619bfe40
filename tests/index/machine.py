"""Random histories on a cache and on the naive model together, with a worker that writes KV.

After every step both must agree on everything that can be seen, and the worker's memory must hold
the right KV for every token that the cache says is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from prefix_cache import BlockCache, Identity
from prefix_cache.errors import PrefixCacheError
from prefix_cache.index.block_hash import HashFunction

from .announced import Announced
from .records import Copies, Event, ExtraKey
from .tiered_model import TieredModel
from .worker import Worker

PLAIN = Identity(model="m")
WHO = (PLAIN, PLAIN, Identity(model="m", adapter="x"), Identity(model="m", salt="x"))
EXTRA_KEYS: tuple[tuple[ExtraKey, ...], ...] = (
    ((0, None, b"image 1"),),
    ((1, 3, b"image 1"),),
    ((1, 3, b"image 2"),),
    ((1, 3, b"image 1"), (2, 9, b"image 2")),
    ((9, 30, b"image 2"), (1, 3, b"image 1")),
    ((5, None, None),),
    ((1, 3, b"image 1"), (9, 11, None)),
)

# A prompt is spelt as a word: "A" is a whole block of token 0, "B" one of token 1, "a" and "b" are
# single tokens.  Words begin alike, so that prefixes are shared; they diverge and end anywhere.
endings = st.text("ABab", max_size=4)
words = st.builds("{}{}".format, st.sampled_from(["A", "AAA", "AABB"]), endings)
owners = st.sampled_from(WHO)
extra_key_lists = st.just(()) | st.sampled_from(EXTRA_KEYS)


@dataclass(eq=False)
class Pair:
    """One sequence on both sides, and the KV that its worker computes for it."""

    real: Any
    model: Any
    kv: list[int]
    unknown: object  # the content behind extra keys that are None: nobody else's


class CacheMachine(RuleBasedStateMachine):
    """Rules are what callers do; subclasses choose the hash, and may break the model."""

    model_class: ClassVar[type[TieredModel]] = TieredModel

    sequences: Bundle[Pair] = Bundle("sequences")
    ended: Bundle[Pair] = Bundle("ended")

    @initialize(num_blocks=st.integers(6, 24), block_size=st.sampled_from([2, 4, 1, 16]))
    def start(self, num_blocks: int, block_size: int) -> None:
        self.begin(num_blocks, block_size, host_blocks=0)

    def begin(self, num_blocks: int, block_size: int, host_blocks: int) -> None:
        self.block_size = block_size
        self.events: list[Any] = []
        self.model_events: list[Event] = []
        self.live: list[Pair] = []
        self.prompts: list[tuple[Identity, list[int], tuple[ExtraKey, ...]]] = []
        self.hashes_may_collide = self.hash_function() is not None
        self.announced = Announced(block_size)
        self.cache = self.new_cache(num_blocks, host_blocks)
        self.model = self.model_class(
            num_blocks, block_size, self.model_events.append, host_blocks=host_blocks
        )
        self.worker = Worker(num_blocks, block_size, host_blocks)
        self.loaded: set[int] = set()  # numbers of the copies that were acknowledged

    def new_cache(self, num_blocks: int, host_blocks: int) -> Any:
        return BlockCache(
            num_blocks=num_blocks,
            block_size=self.block_size,
            host_blocks=host_blocks,
            on_event=self.events.append,
            hash_function=self.hash_function(),
        )

    def hash_function(self) -> HashFunction | None:
        return None

    # --- what callers do --------------------------------------------------------------------

    @rule(target=sequences, who=owners, word=words, extra_keys=extra_key_lists, load=st.booleans())
    def acquire(
        self, who: Identity, word: str, extra_keys: tuple[ExtraKey, ...], load: bool
    ) -> Any:
        return opened(self.acquire_tokens(who, self.spell(word), extra_keys, load))

    @rule(target=sequences, who=owners, word=words, extra_keys=extra_key_lists)
    def prefill(self, who: Identity, word: str, extra_keys: tuple[ExtraKey, ...]) -> Any:
        pair = self.acquire_tokens(who, self.spell(word), extra_keys)
        if pair is not None:
            self.finish_loading(pair)
            self.commit_tokens(pair, len(pair.kv))
        return opened(pair)

    @rule(word=words)
    def serve(self, word: str) -> None:
        """A whole request, so that the pool fills and evicts."""
        pair = self.acquire_tokens(PLAIN, self.spell(word), ())
        if pair is not None:
            self.finish_loading(pair)
            self.commit_tokens(pair, len(pair.kv))
            self.release_pair(pair)

    @rule(target=sequences, pair=st.one_of(sequences, ended), word=endings)
    def acquire_next_turn(self, pair: Pair, word: str) -> Any:
        last = pair.model
        tokens = last.tokens + self.spell(word)
        return opened(self.acquire_tokens(last.who, tokens, last.extra_keys))

    @rule(pair=sequences)
    def compute_everything(self, pair: Pair) -> None:
        self.worker.write(pair.real.block_table, pair.kv, pair.real.num_committed_tokens)

    @rule(pair=sequences)
    def commit_everything(self, pair: Pair) -> None:
        self.commit_tokens(pair, len(pair.kv))

    @rule(pair=sequences, num_tokens=st.integers(0, 40))
    def commit(self, pair: Pair, num_tokens: int) -> None:
        self.commit_tokens(pair, num_tokens)

    @rule(pair=sequences, word=endings)
    def append(self, pair: Pair, word: str) -> None:
        self.append_tokens(pair, self.spell(word))

    @rule()
    def decode_step(self) -> None:
        """One token for every live sequence, and not the same for all."""
        for index, pair in enumerate(self.live):
            self.append_tokens(pair, [index % 2])

    @rule(target=sequences, pair=sequences)
    def fork(self, pair: Pair) -> Any:
        children = self.both(lambda side, sequence: side.fork(sequence), pair)
        assert children is not None
        return self.now_live(Pair(*children, pair.kv, pair.unknown))

    @rule(target=ended, pair=consumes(sequences))
    def release(self, pair: Pair) -> Pair:
        self.release_pair(pair)
        return pair

    @rule(pair=ended, call=st.sampled_from(["append", "commit", "fork", "release"]))
    def use_after_release(self, pair: Pair, call: str) -> None:
        arguments = {"append": ([1],), "commit": (1,)}.get(call, ())
        outcome = self.both(lambda side, sequence: getattr(side, call)(sequence, *arguments), pair)
        assert outcome is None

    @precondition(lambda self: len(self.model.cached) > 6)  # not too early
    @rule()
    def reset(self) -> None:
        if self.both(lambda side, _: side.reset()):
            self.worker.pending.clear()

    # --- how a step is played ---------------------------------------------------------------

    def spell(self, word: str) -> list[int]:
        return [
            "ab".index(letter.lower())
            for letter in word
            for _ in range(self.block_size if letter.isupper() else 1)
        ]

    def acquire_tokens(
        self,
        who: Identity,
        tokens: list[int],
        extra_keys: tuple[ExtraKey, ...],
        load: bool = True,
    ) -> Pair | None:
        self.prompts = [*self.prompts[-3:], (who, tokens, extra_keys)]
        both = self.both(lambda side, _: side.acquire(who, tokens, extra_keys, load=load))
        return self.now_acquired(*both) if both else None

    def now_acquired(self, real: Any, model: Any) -> Pair:
        self.told_to_copy(real.copies, model.copies)
        return self.now_live(Pair(real, model, kv=[], unknown=object()))

    def told_to_copy(self, real: Any, model: Copies) -> None:
        """The worker reads what is offloaded before it writes anything."""
        assert (real.copy_id, real.offloads, real.loads) == model
        if real.copy_id:
            self.worker.begin(real)

    def finish_loading(self, pair: Pair) -> None:
        """The worker waits for the copies of the acquire."""
        if pair.real.copies.copy_id in self.worker.pending:
            self.acknowledge_copy(pair.real.copies.copy_id)

    def acknowledge_copy(self, copy_id: int) -> None:
        self.worker.make(copy_id)
        self.worker.forget(copy_id)
        self.both(lambda side, _: side.acknowledge(copy_id))
        self.loaded.add(copy_id)

    def append_tokens(self, pair: Pair, token_ids: list[int]) -> None:
        """Copy what the cache says before anything is written."""
        both = self.both(lambda side, sequence: side.append(sequence, token_ids), pair)
        if both is not None:
            real, model = both
            assert tuple(real.new_block_ids) == model.new_block_ids
            assert tuple(real.copies) == model.copies
            self.told_to_copy(
                Copies(real.copy_id, real.offloads, ()), Copies(model.copy_id, model.offloads, ())
            )
            self.worker.copy(real.copies)
            self.know_kv(pair)

    def commit_tokens(self, pair: Pair, num_tokens: int) -> None:
        """Write first, then say so."""
        written = pair.kv[:num_tokens]
        self.worker.write(pair.real.block_table, written, pair.real.num_committed_tokens)
        self.both(lambda side, sequence: side.commit(sequence, num_tokens), pair)

    def release_pair(self, pair: Pair) -> None:
        self.both(lambda side, sequence: side.release(sequence), pair)
        self.live.remove(pair)

    def now_live(self, pair: Pair) -> Pair:
        self.live.append(pair)
        self.know_kv(pair)
        return pair

    def know_kv(self, pair: Pair) -> None:
        """Work out what the KV of the sequence's tokens must be."""
        sequence = pair.model
        pair.kv = self.worker.kv(
            sequence.who, sequence.tokens, sequence.extra_keys, unknown=pair.unknown
        )

    def both(
        self, call: Callable[[Any, Any], Any], pair: Pair | None = None
    ) -> tuple[Any, Any] | None:
        """Call the cache and the model: both answers, or None if both refused alike."""
        real = outcome(call, self.cache, pair and pair.real)
        model = outcome(call, self.model, pair and pair.model)
        if not isinstance(real, PrefixCacheError) and not isinstance(model, PrefixCacheError):
            return real, model
        assert type(real) is type(model), (real, model)
        assert model.details.items() <= real.details.items()
        return None

    # --- what must hold after every step ----------------------------------------------------

    @invariant()
    def same_events(self) -> None:
        assert len(self.events) == len(self.model_events)
        while self.events:
            self.announced.check(self.events.pop(0), self.model_events.pop(0))
        assert self.hashes_may_collide or self.announced.all_hashes_differ()

    @invariant()
    def same_counts(self) -> None:
        stats = self.cache.stats()
        for name, value in vars(self.model.stats()).items():
            assert getattr(stats, name) == value, name

    @invariant()
    def same_sequences(self) -> None:
        for pair in self.live:
            real, model = pair.real, pair.model
            assert list(real.block_table) == model.block_table
            assert real.num_tokens == model.num_tokens
            assert real.num_cached_tokens == model.num_cached_tokens
            assert real.num_loaded_tokens == model.num_loaded_tokens
            assert real.num_committed_tokens == model.num_committed_tokens

    @invariant()
    def same_matches(self) -> None:
        for who, tokens, extra_keys in self.prompts:
            real = self.cache.match(who, tokens, extra_keys)
            model = self.model.match(who, tokens, extra_keys)
            assert real.num_cached_tokens == model.num_cached_tokens
            assert list(real.block_ids) == model.block_ids
            assert real.num_host_tokens == model.num_host_tokens

    @invariant()
    def memory_holds_what_is_claimed(self) -> None:
        for pair in self.live:
            claimed = pair.real.num_committed_tokens
            if pair.real.copies.copy_id in self.loaded:
                claimed = max(claimed, pair.real.num_cached_tokens)
            assert self.worker.read(pair.real.block_table, claimed) == pair.kv[:claimed]

    @invariant()
    def audits(self) -> None:
        self.cache.audit()


def outcome(call: Callable[[Any, Any], Any], side: Any, sequence: Any) -> Any:
    """What the call answers, or the refusal that it raises."""
    try:
        return call(side, sequence)
    except PrefixCacheError as refusal:
        return refusal


def opened(pair: Pair | None) -> Any:
    """What a rule adds to a bundle: the sequence if there is one."""
    return multiple() if pair is None else pair
