"""``BlockCache``: which KV blocks hold the KV of which tokens, who uses them, what goes next."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable

from prefix_cache.errors import (
    CommitBeyondTokens,
    ForeignSequence,
    PoolExhausted,
    PromptTooLarge,
    ReleasedSequence,
    SequencesLive,
    UnknownSequence,
)
from prefix_cache.index.arguments import (
    MAX_BLOCK_SIZE,
    MAX_NUM_BLOCKS,
    MAX_TOKENS,
    check_identity,
    check_prefix,
    checked_integer,
    prompt_bytes,
)
from prefix_cache.index.audit import audit
from prefix_cache.index.block_hash import BlockHasher, HashFunction
from prefix_cache.index.block_pool import BlockPool
from prefix_cache.index.diagnosis import Diagnosis, Explanation
from prefix_cache.index.events import BlocksRemoved, Cleared, Event
from prefix_cache.index.extra_keys import ExtraKey, ExtraKeys
from prefix_cache.index.identity import Identity
from prefix_cache.index.outbox import Outbox
from prefix_cache.index.prefix_ends import PrefixEnds
from prefix_cache.index.prefix_tree import Place, PrefixTree
from prefix_cache.index.publish import publish
from prefix_cache.index.results import Appended, Match, Prefix, Stats
from prefix_cache.index.sequence import Sequence, block_ids
from prefix_cache.index.snapshot import Snapshot
from prefix_cache.index.tokens import TOKEN_BYTES, Tokens, as_token_bytes

# Ends of released sequences that a prompt in delta form may go on from; about 400 bytes each.
MAX_ENDS = 16_384

_NOTHING_NEW = Appended((), ())


class BlockCache:
    """Index of one worker's KV memory of ``num_blocks`` blocks of ``block_size`` tokens.

    A sequence lives from ``acquire`` to ``release``.  Blocks whose KV the worker has committed
    can be found by later prompts of an equal ``Identity``, and are evicted, least recently
    released first, only when nobody uses them and a block is needed.

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
        on_event: Callable[[Event], object] | None = None,
        hash_function: HashFunction | None = None,
    ) -> None:
        num_blocks = checked_integer("num_blocks", num_blocks, 1, MAX_NUM_BLOCKS)
        block_size = checked_integer("block_size", block_size, 1, MAX_BLOCK_SIZE)
        self._block_size = block_size
        self._no_keys = ExtraKeys((), block_size)  # those of nearly every sequence
        self._outbox = Outbox(on_event)
        self._pool = BlockPool(num_blocks)
        self._tree = PrefixTree(block_size, BlockHasher(block_size, hash_function))
        self._ends = PrefixEnds(self._tree, MAX_ENDS)
        self._live: dict[int, Sequence] = {}
        self._opened = 0
        self._query_tokens = 0
        self._hit_tokens = 0
        self._evicted_blocks = 0
        self._recomputed_tokens = 0

    @property
    def num_blocks(self) -> int:
        """Physical blocks in the pool."""
        return self._pool.num_blocks

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
        prompt = prompt_bytes(tokens)
        keys = self._keys(extra_keys)
        place = self._find(self._start(identity, after, keys), prompt, keys)
        return Match(place.depth * self._block_size, block_ids(self._tree.blocks_to(place)))

    def acquire(
        self,
        identity: Identity,
        tokens: Tokens,
        extra_keys: Iterable[ExtraKey] = (),
        *,
        after: Prefix | None = None,
        resumed: bool = False,
    ) -> Sequence:
        """Open a sequence for a prompt: find its cached prefix, pin it, allocate the rest.

        At least one token is left to compute, so that there are logits to go on from.  Raises
        ``PoolExhausted`` when the blocks are not there now, ``PromptTooLarge`` when they never
        will be, ``InvalidTokens`` for an empty prompt.

        In delta form ``tokens`` are those after the prefix ``after``, which a sequence of this
        identity had committed when it was released (its last ``findable_prefix``).  It is taken
        by its hash, without comparing its tokens.  Raises ``UnknownPrefix`` when it is not known
        or not there any more.

        ``resumed`` says that the prompt was acquired before and preempted.  It counts as no new
        query or hit then; what has to be computed again counts as recomputed.
        """
        prompt = prompt_bytes(tokens)
        keys = self._keys(extra_keys)
        start = self._start(identity, after, keys)
        place = self._find(start, prompt, keys)
        num_tokens = start.depth * self._block_size + len(prompt) // TOKEN_BYTES
        total = self._blocks_for(num_tokens)
        needed = total - place.depth
        if needed > self._pool.free:
            self._check_room(total, needed, self._tree.evictable_on(place))
        table = self._tree.blocks_to(place)
        run = self._tree.boundary(place)
        self._tree.pin(run)
        table += self._take(needed)
        pending = bytearray(prompt[(place.depth - start.depth) * self._tree.block_bytes :])
        seq = Sequence(
            self, self._block_size, self._next_id(), keys, run, place.depth, table, pending
        )
        seq.num_tokens = num_tokens
        seq.num_cached_tokens = seq.num_committed_tokens = place.depth * self._block_size
        self._live[seq.id] = seq
        if resumed:
            self._recomputed_tokens += num_tokens - seq.num_cached_tokens
        else:
            self._query_tokens += num_tokens
            self._hit_tokens += seq.num_cached_tokens
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
        diagnosis = Diagnosis(self._tree, tuple(self._live.values()))
        keys = self._keys(extra_keys)
        prompt = prompt_bytes(tokens)
        return diagnosis.explain(identity, prompt, keys, across_salts=across_salts)

    def commit(self, seq: Sequence, num_tokens: int) -> None:
        """Say that the KV of the first ``num_tokens`` tokens is written.

        Full blocks among them become findable.  A block that is cached already stays as it is,
        and the sequence keeps its own copy to itself.  Nothing happens where that many tokens are
        committed already; more than the sequence has raises ``CommitBeyondTokens``.
        """
        self._check_live(seq)
        num_tokens = checked_integer("num_tokens", num_tokens, 0, MAX_TOKENS)
        if num_tokens > seq.num_tokens:
            raise CommitBeyondTokens(
                f"cannot commit {num_tokens} tokens, the sequence has {seq.num_tokens}",
                num_tokens=num_tokens,
                sequence_tokens=seq.num_tokens,
            )
        if num_tokens <= seq.num_committed_tokens:
            return
        target = seq.findable_blocks(num_tokens)
        if target > seq.depth:
            publish(seq, target, self._tree, self._pool, self._outbox)
        seq.num_committed_tokens = num_tokens
        self._outbox.deliver()

    def append(self, seq: Sequence, token_ids: Tokens) -> Appended:
        """Add tokens, generated or given, and allocate the blocks they need.

        Where the last, partial block is shared with a fork, a copy takes its place: the worker
        makes the ``copies`` before it writes.  Raises ``PoolExhausted`` or ``PromptTooLarge``.
        """
        self._check_live(seq)
        tokens = as_token_bytes(token_ids)
        if not tokens:
            return _NOTHING_NEW
        num_tokens = seq.num_tokens + len(tokens) // TOKEN_BYTES
        total = self._blocks_for(num_tokens)
        if total == len(seq.table) and not self._pool.is_shared(seq.table[-1]):
            # Nearly every step of a decode: the last block has room and is the sequence's own.
            seq.pending += tokens
            seq.num_tokens = num_tokens
            return _NOTHING_NEW
        copied = bool(seq.num_tokens % self._block_size) and self._pool.is_shared(seq.table[-1])
        needed = total - len(seq.table) + copied
        self._check_room(total, needed, 0)
        taken = self._take(needed)
        copies: tuple[tuple[int, int], ...] = ()
        if copied:
            src, dst = seq.table[-1], taken.pop(0)
            self._pool.give_back(array("i", [src]))
            seq.table[-1] = dst
            copies = ((src, dst),)
        seq.table += taken
        seq.pending += tokens
        seq.num_tokens = num_tokens
        self._outbox.deliver()
        return Appended(tuple(taken), copies)

    def fork(self, seq: Sequence) -> Sequence:
        """Open a sequence that shares every block of ``seq``, the partial last one included."""
        self._check_live(seq)
        child = Sequence(
            self,
            self._block_size,
            self._next_id(),
            seq.extra_keys,
            seq.run,
            seq.depth,
            seq.table[:],
            seq.pending[:],
        )
        child.duplicates = seq.duplicates[:]
        child.num_tokens = seq.num_tokens
        child.num_cached_tokens = seq.num_cached_tokens
        child.num_committed_tokens = seq.num_committed_tokens
        child.family = seq.family
        child.family.add(child)
        self._pool.share(seq.private_blocks())
        self._tree.pin(seq.run)
        self._live[child.id] = child
        return child

    def release(self, seq: Sequence) -> None:
        """End a sequence: committed blocks stay cached, what only it held becomes free."""
        self._check_live(seq)
        self._pool.give_back(seq.private_blocks())
        if seq.depth:
            self._ends.remember(seq.run, seq.depth)
        self._tree.unpin(seq.run)
        seq.family.discard(seq)
        seq.released = True
        del self._live[seq.id]

    # --- the cache as a whole ---------------------------------------------------------------

    def reset(self) -> None:
        """Drop every cached block.  Raises ``SequencesLive`` while a sequence lives."""
        if self._live:
            raise SequencesLive(
                f"cannot reset while {len(self._live)} sequences live", live=len(self._live)
            )
        self._pool = BlockPool(self.num_blocks)
        self._tree = PrefixTree(self._block_size, self._tree.hasher)
        self._ends = PrefixEnds(self._tree, MAX_ENDS)
        if self._outbox.wanted:
            self._outbox.put(Cleared())
        self._outbox.deliver()

    def stats(self) -> Stats:
        """Blocks by state and counters, in constant time."""
        return Stats(
            num_blocks=self._pool.num_blocks,
            free=self._pool.free,
            cached=self._pool.cached,
            private=self._pool.private,
            evictable=self._tree.evictable,
            live_sequences=len(self._live),
            query_tokens=self._query_tokens,
            hit_tokens=self._hit_tokens,
            evicted_blocks=self._evicted_blocks,
            recomputed_tokens=self._recomputed_tokens,
        )

    def snapshot(self, *, with_tokens: bool = True) -> Snapshot:
        """Copy what is findable now, to be told as ``BlocksStored`` events at leisure.

        Without tokens it takes a fifth of the memory, and their ``token_ids`` are empty.
        """
        return Snapshot(self._tree, with_tokens)

    def audit(self) -> None:
        """Check every invariant, in time that grows with the cache; ``AuditError`` if one fails."""
        audit(self._pool, self._tree, self._live.values(), self._block_size)

    # --- inside -----------------------------------------------------------------------------

    def _keys(self, extra_keys: Iterable[ExtraKey]) -> ExtraKeys:
        if isinstance(extra_keys, tuple | list) and not extra_keys:
            return self._no_keys
        return ExtraKeys(extra_keys, self._block_size)

    def _start(self, identity: Identity, after: Prefix | None, keys: ExtraKeys) -> Place:
        check_identity(identity)
        if after is not None:
            check_prefix(after)
            return self._ends.find(identity, after, keys)
        return Place(self._tree.root(identity), 0, 0)

    def _find(self, start: Place, prompt: bytes, keys: ExtraKeys) -> Place:
        num_tokens = start.depth * self._block_size + len(prompt) // TOKEN_BYTES
        limit = (num_tokens - 1) // self._block_size
        if keys.limit is not None:
            limit = min(limit, keys.limit)
        return self._tree.find(start, prompt, keys, limit)

    def _take(self, count: int) -> array[int]:
        """``count`` blocks, which must be there: free ones first, then evicted ones."""
        short = count - self._pool.free
        if short <= 0:
            return self._pool.take(count)
        blocks = self._pool.take(count - short)
        removed: list[bytes] | None = [] if self._outbox.wanted else None
        evicted = self._tree.evict(short, removed)
        self._pool.take_over(evicted)
        self._evicted_blocks += short
        blocks += evicted
        if removed:
            self._outbox.put(BlocksRemoved(tuple(removed)))
        return blocks

    def _check_room(self, total: int, needed: int, pinned: int) -> None:
        """``pinned`` of the evictable blocks are about to be pinned and do not count."""
        if total > self.num_blocks:
            raise PromptTooLarge(
                f"the sequence needs {total} blocks, the pool has {self.num_blocks}",
                needed=total,
                num_blocks=self.num_blocks,
            )
        available = self._pool.free + self._tree.evictable - pinned
        if needed > available:
            raise PoolExhausted(
                f"{needed} blocks are needed, {available} are free or evictable",
                needed=needed,
                available=available,
            )

    def _check_live(self, seq: Sequence) -> None:
        if not isinstance(seq, Sequence):
            raise UnknownSequence(f"{seq!r} is no sequence", value=repr(seq))
        if seq.cache is not self:
            raise ForeignSequence(f"sequence {seq.id} belongs to another cache", id=seq.id)
        if seq.released:
            raise ReleasedSequence(f"sequence {seq.id} was released before", id=seq.id)

    def _blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self._block_size)

    def _next_id(self) -> int:
        self._opened += 1
        return self._opened
