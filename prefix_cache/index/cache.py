"""``BlockCache``: which KV blocks hold the KV of which tokens, who uses them, what goes next."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import asdict

from prefix_cache.errors import (
    CommitBeyondTokens,
    CopyPending,
    SequencesLive,
)
from prefix_cache.index.allocator import Allocator
from prefix_cache.index.arguments import (
    MAX_BLOCK_SIZE,
    MAX_COPY_ID,
    MAX_NUM_BLOCKS,
    MAX_TOKENS,
    check_identity,
    checked_integer,
    prompt_bytes,
)
from prefix_cache.index.audit import audit
from prefix_cache.index.block_hash import BlockHasher, HashFunction
from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.counts import Counts
from prefix_cache.index.diagnosis import Diagnosis, Explanation
from prefix_cache.index.events import BlocksRemoved, Cleared, Event
from prefix_cache.index.extra_keys import ExtraKey
from prefix_cache.index.host_tier import HostTier
from prefix_cache.index.identity import Identity
from prefix_cache.index.lookup import NO_SLOTS, Lookup
from prefix_cache.index.outbox import Outbox
from prefix_cache.index.pending_copies import PendingCopies
from prefix_cache.index.prefix_ends import PrefixEnds
from prefix_cache.index.prefix_tree import PrefixTree
from prefix_cache.index.publish import publish
from prefix_cache.index.results import NO_COPIES, Appended, Match, Prefix, Stats
from prefix_cache.index.sequence import Sequence, block_ids, check_live
from prefix_cache.index.snapshot import Snapshot
from prefix_cache.index.tokens import TOKEN_BYTES, Tokens, as_token_bytes

# Ends of released sequences that a prompt in delta form may go on from; about 400 bytes each.
MAX_ENDS = 16_384

_NOTHING_NEW = Appended((), ())


class BlockCache:
    """Index of one worker's KV memory: ``num_blocks`` blocks of ``block_size`` tokens on the GPU.

    A sequence lives from ``acquire`` to ``release``.  Blocks whose KV the worker has committed
    can be found by later prompts of an equal ``Identity``, and are evicted, least recently
    released first, only when nobody uses them and a block is needed.

    With ``host_blocks`` slots of host memory, evicted blocks live on there.  The worker makes the
    copies that a call brings and then acknowledges them, or withdraws them where it has not made
    and never will make them; only then can the blocks they write be found or committed, or be
    used for anything else.

    Every call either succeeds or raises a ``PrefixCacheError`` and changes nothing.  The cache is
    single-threaded: callers on several threads hold a lock around each call.

    ``on_event`` is called with every change of the findable set before the call that made it
    returns; what it raises is logged and goes no further, since the change has happened.
    ``hash_function(parent, block, extra)`` replaces the chain hash; what it raises comes through,
    and nothing has changed then either.

    An extra key is ``(start, end | None, key | None)`` over token positions: ``end`` None reaches
    to the end of the sequence, ``key`` None forbids reuse from its block on.
    """

    def __init__(
        self,
        num_blocks: int = 4096,
        block_size: int = 16,
        *,
        host_blocks: int = 0,
        on_event: Callable[[Event], object] | None = None,
        hash_function: HashFunction | None = None,
    ) -> None:
        num_blocks = checked_integer("num_blocks", num_blocks, 1, MAX_NUM_BLOCKS)
        block_size = checked_integer("block_size", block_size, 1, MAX_BLOCK_SIZE)
        host_blocks = checked_integer("host_blocks", host_blocks, 0, MAX_NUM_BLOCKS)
        self._block_size = block_size
        self._host_blocks = host_blocks
        self._outbox = Outbox(on_event)
        self._counts = Counts()
        self._pending = PendingCopies()
        self._live: dict[int, Sequence] = {}
        self._opened = 0
        self._fill(num_blocks, BlockHasher(block_size, hash_function))

    def _fill(self, num_blocks: int, hasher: BlockHasher) -> None:
        """Begin with nothing cached."""
        self._pool = BlockPool(num_blocks)
        self._tree = PrefixTree(self._block_size, hasher)
        self._ends = PrefixEnds(self._tree, MAX_ENDS)
        self._host = HostTier(
            self._host_blocks, self._tree, self._pool, self._counts, self._pending
        )
        self._lookup = Lookup(self._tree, self._ends, self._host)
        self._allocator = Allocator(self._pool, self._tree, self._host, self._counts, self._outbox)

    @property
    def num_blocks(self) -> int:
        """Physical blocks in the pool."""
        return self._pool.size

    @property
    def host_blocks(self) -> int:
        """Slots of the host tier."""
        return self._host_blocks

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self._block_size

    # --- the life of a sequence -------------------------------------------------------------

    def match(
        self,
        identity: Identity,
        tokens: Tokens,
        extra_keys: Iterable[ExtraKey] = (),
        *,
        after: Prefix | None = None,
    ) -> Match:
        """Return what ``acquire`` would find cached now; changes nothing, pins nothing."""
        place, slots, _, _, _, _ = self._lookup.find(identity, tokens, extra_keys, after)
        on_host = len(slots) * self._block_size
        on_gpu = place.depth * self._block_size
        return Match(on_gpu + on_host, block_ids(place.blocks()), on_host)

    def acquire(
        self,
        identity: Identity,
        tokens: Tokens,
        extra_keys: Iterable[ExtraKey] = (),
        *,
        after: Prefix | None = None,
        resumed: bool = False,
        load: bool = True,
    ) -> Sequence:
        """Open a sequence for a prompt: find its cached prefix, pin it, allocate the rest.

        At least one token is left to compute, so that there are logits to go on from.  What is
        cached on the host is loaded into blocks of the sequence's own, by its ``copies``; without
        ``load`` it is to be computed.  Raises ``PoolExhausted`` when the blocks are not there now,
        ``PromptTooLarge`` when they never will be, ``InvalidTokens`` for an empty prompt.

        In delta form ``tokens`` are those after the prefix ``after``, which a sequence of this
        identity had committed when it was released (its last ``findable_prefix``).  It is taken
        by its hash, without comparing its tokens.  Raises ``UnknownPrefix`` when it is not known
        or not there any more.

        ``resumed`` says that the prompt was acquired before and preempted.  It counts as no new
        query or hit then; what has to be computed again counts as recomputed.
        """
        place, slots, num_tokens, prompt, begin, keys = self._lookup.find(
            identity, tokens, extra_keys, after
        )
        if not load:
            slots = NO_SLOTS
        total = -(-num_tokens // self._block_size)
        needed = total - place.depth
        if needed > self._pool.free:
            self._allocator.check_room(total, needed, place.unused_blocks())
        table = place.blocks()
        run = self._tree.boundary(place)
        self._tree.pin(run)
        if slots:
            self._host.slots.begin_reading(slots)  # what is to be read stays where it is
        taken = self._allocator.take(needed)
        table += taken
        pending = bytearray(prompt[begin:])
        seq = Sequence(
            self, self._block_size, self._next_id(), keys, run, place.depth, table, pending
        )
        if self._host_blocks:
            seq.copies = self._host.copies(slots, taken[: len(slots)])
            seq.num_cached_tokens += seq.num_loaded_tokens
            self._counts.loaded_tokens += seq.num_loaded_tokens
        self._live[seq.id] = seq
        if resumed:
            self._counts.recomputed_tokens += num_tokens - seq.num_cached_tokens
        else:
            self._counts.query_tokens += num_tokens
            self._counts.hit_tokens += seq.num_cached_tokens
        self._outbox.deliver()
        return seq

    def explain(
        self,
        identity: Identity,
        tokens: Tokens,
        extra_keys: Iterable[ExtraKey] = (),
        *,
        across_salts: bool = False,
    ) -> Explanation:
        """Say for every token of a prompt why it would hit or miss now; changes nothing.

        Unless ``across_salts``, nothing is said of what is cached under another salt.
        """
        check_identity(identity)
        diagnosis = Diagnosis(self._tree, self._host, tuple(self._live.values()))
        keys = self._lookup.keys(extra_keys)
        prompt = prompt_bytes(tokens)
        return diagnosis.explain(identity, prompt, keys, across_salts=across_salts)

    def commit(self, seq: Sequence, num_tokens: int) -> None:
        """Say that the KV of the first ``num_tokens`` tokens is written.

        Full blocks among them become findable.  A block that is cached already stays as it is,
        and the sequence keeps its own copy to itself; but where it is cached on the host, the
        sequence's own takes its place.  Nothing happens where that many tokens are committed
        already; more than the sequence has raises ``CommitBeyondTokens``, and more than it has
        while it is being loaded ``CopyPending``.
        """
        check_live(seq, self)
        num_tokens = checked_integer("num_tokens", num_tokens, 0, MAX_TOKENS)
        if num_tokens > seq.num_tokens:
            raise CommitBeyondTokens(
                f"cannot commit {num_tokens} tokens, the sequence has {seq.num_tokens}",
                num_tokens=num_tokens,
                sequence_tokens=seq.num_tokens,
            )
        if num_tokens <= seq.num_committed_tokens:
            return
        if seq.copies.loads and seq.copies.copy_id in self._pending:
            raise CopyPending(
                f"cannot commit {num_tokens} tokens while copy {seq.copies.copy_id} loads those "
                f"after {seq.num_committed_tokens}: acknowledge or withdraw it first",
                num_tokens=num_tokens,
                copy_id=seq.copies.copy_id,
            )
        target = seq.findable_blocks(num_tokens)
        if target > seq.depth:
            publish(seq, target, self._tree, self._pool, self._host, self._outbox)
        seq.num_committed_tokens = num_tokens
        self._outbox.deliver()

    def append(self, seq: Sequence, token_ids: Tokens) -> Appended:
        """Add tokens, generated or given, and allocate the blocks they need.

        Where the last, partial block is shared with a fork, a copy takes its place: the worker
        makes the ``copies`` before it writes, and before these the ``offloads``.  Raises
        ``PoolExhausted`` or ``PromptTooLarge``.
        """
        check_live(seq, self)
        tokens = as_token_bytes(token_ids)
        if not tokens:
            return _NOTHING_NEW
        num_tokens = seq.num_tokens + len(tokens) // TOKEN_BYTES
        total = -(-num_tokens // self._block_size)
        if total == len(seq.table) and not self._pool.is_shared(seq.table[-1]):
            # Nearly every step of a decode: the last block has room and is the sequence's own.
            seq.pending += tokens
            seq.num_tokens = num_tokens
            return _NOTHING_NEW
        copied = bool(seq.num_tokens % self._block_size) and self._pool.is_shared(seq.table[-1])
        needed = total - len(seq.table) + copied
        self._allocator.check_room(total, needed, 0)
        taken = self._allocator.take(needed)
        copies: tuple[tuple[int, int], ...] = ()
        if copied:
            src, dst = seq.table[-1], taken.pop(0)
            self._pool.give_back(array("i", [src]))
            seq.table[-1] = dst
            copies = ((src, dst),)
        seq.table += taken
        seq.pending += tokens
        seq.num_tokens = num_tokens
        made = self._host.copies(NO_SLOTS, NO_SLOTS) if self._host_blocks else NO_COPIES
        self._outbox.deliver()
        return Appended(tuple(taken), copies, made.offloads, made.copy_id)

    def fork(self, seq: Sequence) -> Sequence:
        """Open a sequence that shares every block of ``seq``, the partial last one included."""
        check_live(seq, self)
        child = seq.fork(self._next_id())
        self._pool.share(seq.private_blocks())
        self._tree.pin(seq.run)
        self._live[child.id] = child
        return child

    def release(self, seq: Sequence) -> None:
        """End a sequence: committed blocks stay cached, what only it held becomes free.

        Blocks that are being loaded become free with the end of the copy.
        """
        check_live(seq, self)
        self._pool.give_back(seq.private_blocks())
        if seq.depth:
            self._ends.remember(seq.run, seq.depth)
        self._tree.unpin(seq.run)
        seq.family.discard(seq)
        seq.released = True
        del self._live[seq.id]

    # --- copies between GPU and host --------------------------------------------------------

    def acknowledge(self, copy_id: int) -> None:
        """Say that the offloads and loads of a reply were made.

        What was offloaded can be found, and what was loaded can be committed.  Raises
        ``UnknownCopy`` for a copy that is not pending.
        """
        self._host.acknowledge(checked_integer("copy_id", copy_id, 0, MAX_COPY_ID))

    def withdraw(self, copy_id: int) -> None:
        """Say that the offloads and loads of a reply were not made and never will be.

        What was to be offloaded is dropped, with all that follows it.  What was to be loaded may
        be computed by its sequence and committed then.  Raises ``UnknownCopy``.
        """
        removed: list[bytes] | None = [] if self._outbox.wanted else None
        self._host.withdraw(checked_integer("copy_id", copy_id, 0, MAX_COPY_ID), removed)
        if removed:
            self._outbox.put(BlocksRemoved(tuple(removed)))
        self._outbox.deliver()

    # --- the cache as a whole ---------------------------------------------------------------

    def reset(self) -> None:
        """Drop every cached block and forget pending copies, which the worker must have ended.

        Raises ``SequencesLive`` while a sequence lives.
        """
        if self._live:
            raise SequencesLive(
                f"cannot reset while {len(self._live)} sequences live", live=len(self._live)
            )
        self._pending.clear()
        self._fill(self.num_blocks, self._tree.hasher)
        if self._outbox.wanted:
            self._outbox.put(Cleared())
        self._outbox.deliver()

    def stats(self) -> Stats:
        """Blocks by state and counters, in constant time."""
        slots = self._host.slots
        return Stats(
            num_blocks=self._pool.size,
            free=self._pool.free,
            cached=self._pool.cached,
            private=self._pool.private,
            evictable=self._tree.evictable,
            live_sequences=len(self._live),
            host_blocks=slots.size,
            host_free=slots.free,
            host_cached=slots.cached,
            pending_copies=len(self._pending),
            **asdict(self._counts),
        )

    def snapshot(self, *, with_tokens: bool = True) -> Snapshot:
        """Copy what is findable now, to be told as ``BlocksStored`` events at leisure.

        Without tokens it takes a fifth of the memory, and their ``token_ids`` are empty.
        """
        return Snapshot(self._tree, with_tokens)

    def audit(self) -> None:
        """Check every invariant, in time that grows with the cache; ``AuditError`` if one fails."""
        audit(self._pool, self._tree, self._host, self._live.values(), self._block_size)

    # --- inside -----------------------------------------------------------------------------

    def _next_id(self) -> int:
        self._opened += 1
        return self._opened
