"""Paged KV memory: ``BlockCache`` itself, as an engine drives it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prefix_cache.errors import PoolExhausted
from prefix_cache.index.cache import BlockCache
from prefix_cache.index.identity import Identity
from prefix_cache.index.sequence import Sequence as CachedSequence
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.simulate.allocators.allocator import Usage
from prefix_cache.simulate.request import Request

# Free blocks that stay so when a request is taken in, so that those that run can grow.
_WATERMARK = 0.01
_WHO = Identity(model="simulated")


@dataclass(slots=True, eq=False)
class Tables:
    """The sequences of a request, one until it forks when its first token is fed."""

    request: Request
    sequences: list[CachedSequence]
    num_fed: int
    num_cached_tokens: int
    branched: int = 0

    @property
    def num_slots(self) -> int:
        """Slots of all blocks in the tables, shared ones once."""
        tables = [sequence.block_table for sequence in self.sequences]
        return len(np.unique(np.concatenate(tables))) * self.sequences[0].block_size

    @property
    def next_branch(self) -> int | None:
        """The step at which the sequences fork next."""
        if len(self.sequences) < self.request.width:
            return self.num_fed
        branches = self.request.branches
        return branches[self.branched].step if self.branched < len(branches) else None


class Paged:
    """Blocks on demand; the sequences of a request share what they have in common.

    With ``caching``, what was computed is committed, and later prompts find it; else nothing
    outlives its request.  What was computed for a prompt of the same step counts as found.
    """

    def __init__(self, num_slots: int, block_size: int = 16, *, caching: bool = False) -> None:
        self.name = "paged_caching" if caching else "paged"
        self.block_size = block_size
        self.cache = BlockCache(num_slots // block_size, block_size)
        self.num_slots = self.cache.num_blocks * block_size
        self.copied_tokens = 0
        self._caching = caching
        self._watermark = int(self.cache.num_blocks * _WATERMARK)
        self._open: set[Tables] = set()

    def open(self, request: Request, num_fed: int) -> Tables | None:
        """Acquire the prompt, and what is fed already; None, PromptTooLarge: by the interface."""
        alone = request.width == 1
        tokens = request.prompt + request.answer[: num_fed * TOKEN_BYTES if alone else 0]
        if self._open and self._is_short_for(tokens):
            return None
        try:
            first = self.cache.acquire(_WHO, tokens)
        except PoolExhausted:
            if not self._open:
                raise
            return None
        tables = Tables(request, [first], num_fed if alone else 0, first.num_cached_tokens)
        self._open.add(tables)
        self._commit(tables)
        if not self._feed(tables, num_fed):
            self.close(tables)
            return None
        return tables

    def sure_steps(self, holdings: Sequence[Tables]) -> int:
        """Return the steps until blocks run out or sequences fork.

        A sequence whose last block has room for r more tokens takes a block at step r + 1, and
        another one each ``block_size`` steps later.
        """
        steps: list[int] = []
        for tables in holdings:
            if (branch := tables.next_branch) is not None:
                steps.append(branch - tables.num_fed)
        rooms = sorted(
            -sequence.num_tokens % self.block_size
            for tables in holdings
            for sequence in tables.sequences
        )
        rounds, served = divmod(self._available(), len(rooms))
        return min([*steps, rounds * self.block_size + rooms[served]])

    def grow(self, holding: Tables, steps: int) -> bool:
        """Append tokens; False where blocks ran out."""
        return self._feed(holding, holding.num_fed + steps)

    def close(self, holding: Tables) -> None:
        """Release the sequences."""
        self._commit(holding)
        for sequence in holding.sequences:
            self.cache.release(sequence)
        self._open.remove(holding)

    def usage(self) -> Usage:
        """Return what memory is used for now; what is cached and in no table is free."""
        given = self.num_slots - self._available() * self.block_size
        reserved = internal = unshared = 0
        for tables in self._open:
            final = tables.request.final_tokens
            for sequence in tables.sequences:
                empty = -sequence.num_tokens % self.block_size
                to_come = min(empty, final - sequence.num_tokens)
                reserved += to_come
                internal += empty - to_come
                unshared += sequence.num_tokens + empty
        return Usage(
            tokens=given - reserved - internal,
            reserved=reserved,
            internal=internal,
            rounding=0,
            free=self.num_slots - given,
            unshared=unshared,
        )

    def _feed(self, tables: Tables, num_fed: int) -> bool:
        """Append up to ``num_fed`` tokens of the answer to each sequence, forking on the way.

        Called again after blocks ran out it goes on with the sequences that lack tokens.
        """
        request = tables.request
        prompt_tokens = request.prompt_tokens
        while tables.num_fed < num_fed:
            branch = tables.next_branch
            if branch == tables.num_fed:
                self._branch(tables)
                branch = tables.next_branch
            stop = num_fed if branch is None else min(num_fed, branch)
            for sequence in tables.sequences:
                fed = sequence.num_tokens - prompt_tokens
                tokens = request.answer[fed * TOKEN_BYTES : stop * TOKEN_BYTES]
                try:
                    appended = self.cache.append(sequence, tokens)
                except PoolExhausted:
                    return False
                self.copied_tokens += len(appended.copies) * self.block_size
            tables.num_fed = stop
        return True

    def _branch(self, tables: Tables) -> None:
        """Fork the sequences to their full number, and then as the branches of this step say."""
        sequences, request = tables.sequences, tables.request
        while len(sequences) < request.width:
            sequences.append(self.cache.fork(sequences[0]))
        start = tables.branched
        while tables.next_branch == tables.num_fed:
            tables.branched += 1
        due = request.branches[start : tables.branched]
        children = [self.cache.fork(sequences[branch.parent]) for branch in due]
        for branch, child in zip(due, children, strict=True):
            self.cache.release(sequences[branch.loser])
            sequences[branch.loser] = child

    def _commit(self, tables: Tables) -> None:
        if self._caching:
            for sequence in tables.sequences:
                self.cache.commit(sequence, sequence.num_tokens)

    def _is_short_for(self, tokens: bytes) -> bool:
        needed = -(-len(tokens) // TOKEN_BYTES // self.block_size)
        if self._caching:
            needed -= len(self.cache.match(_WHO, tokens).block_ids)
        return self._available() - needed < self._watermark

    def _available(self) -> int:
        """Blocks that nobody uses."""
        stats = self.cache.stats()
        return stats.free + stats.evictable
