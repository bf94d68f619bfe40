"""F070: whatever was copied between GPU and host, every block holds the KV it is claimed to hold.

A worker with real memory plays random histories: its copies end late and in any order, or never,
requests are cancelled while they load, and blocks are written again as soon as that is allowed.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from prefix_cache import BlockCache
from prefix_cache.errors import PoolExhausted

from . import tier_mutants
from .stories import WHO
from .tiered_model import TieredModel
from .worker import Worker

NUM_BLOCKS, HOST_BLOCKS, BLOCK_SIZE = 8, 6, 2


class LoadsFirst(Worker):
    """Makes the loads of a reply before its offloads."""

    def begin(self, copies: Any) -> None:
        for slot, block in copies.loads:
            self.memory[block] = self.host[slot]
        super().begin(copies)


class OffloadsLate(Worker):
    """Reads what goes to the host only when the copy ends: others have written there by then."""

    def make(self, copy_id: int) -> None:
        super().begin(self.pending[copy_id].copies)
        super().make(copy_id)


class History:
    """Requests on a cache, and the memory of the worker that serves them."""

    def __init__(self, cache: Any, worker: Worker, seed: int) -> None:
        self.cache = cache
        self.worker = worker
        self.chance = random.Random(seed)
        self.live: list[tuple[Any, list[int]]] = []
        self.loaded: set[int] = set()
        self.gone_on = 0  # sequences that were computed on from loaded blocks

    def play(self, steps: int) -> None:
        actions = [self.open, self.open, self.end_copy, self.end_copy, self.compute, self.close]
        for _ in range(steps):
            self.chance.choice(actions)()
            self.check()

    def open(self) -> None:
        tokens = [self.chance.randrange(4)] * self.chance.randint(1, 7)
        tokens += [self.chance.randrange(3) for _ in range(self.chance.randint(1, 3))]
        try:
            sequence = self.cache.acquire(WHO, tokens, ())
        except PoolExhausted:
            return
        if sequence.copies.copy_id:
            self.worker.begin(sequence.copies)
        self.live.append((sequence, self.worker.kv(WHO, tokens)))

    def end_copy(self) -> None:
        if not self.worker.pending:
            return
        copy_id = self.chance.choice(list(self.worker.pending))
        if self.chance.random() < 0.8:
            self.worker.make(copy_id)
            self.worker.forget(copy_id)
            self.cache.acknowledge(copy_id)
            self.loaded.add(copy_id)
        else:
            self.worker.forget(copy_id)
            self.cache.withdraw(copy_id)

    def compute(self) -> None:
        """A batch: of each sequence that is not loading, write what is not there, and commit it."""
        for sequence, kv in self.live:
            if sequence.copies.copy_id not in self.worker.pending:
                claimed = self.claimed(sequence)
                self.gone_on += claimed > sequence.num_committed_tokens
                self.worker.write(sequence.block_table, kv, claimed)
                self.cache.commit(sequence, len(kv))

    def close(self) -> None:
        """Done or cancelled."""
        if self.live:
            sequence, _ = self.live.pop(self.chance.randrange(len(self.live)))
            self.cache.release(sequence)

    def claimed(self, sequence: Any) -> int:
        """Tokens whose KV must be in the sequence's blocks."""
        loaded = sequence.copies.copy_id in self.loaded
        return int(max(sequence.num_committed_tokens, sequence.num_cached_tokens * loaded))

    def check(self) -> None:
        for sequence, kv in self.live:
            claimed = self.claimed(sequence)
            assert self.worker.read(sequence.block_table, claimed) == kv[:claimed]


def new_cache() -> BlockCache:
    return BlockCache(NUM_BLOCKS, BLOCK_SIZE, host_blocks=HOST_BLOCKS)


def new_worker(kind: type[Worker] = Worker) -> Worker:
    return kind(NUM_BLOCKS, BLOCK_SIZE, HOST_BLOCKS)


def play_until_found(new_cache: Any, kind: type[Worker] = Worker) -> None:
    for seed in range(300):
        History(new_cache(), new_worker(kind), seed).play(100)


def test_every_block_holds_the_kv_that_it_is_claimed_to_hold() -> None:
    gone_on = 0
    for seed in range(300):
        history = History(new_cache(), new_worker(), seed)
        history.play(100)
        history.cache.audit()
        gone_on += history.gone_on
    assert gone_on > 100


@pytest.mark.parametrize("kind", [LoadsFirst, OffloadsLate])
def test_a_worker_that_copies_in_another_order_is_noticed(kind: type[Worker]) -> None:
    with pytest.raises(AssertionError):
        play_until_found(new_cache, kind)


@pytest.mark.parametrize("mutant", tier_mutants.UNSAFE, ids=lambda mutant: mutant.__name__)
def test_an_index_that_breaks_a_rule_is_noticed(mutant: type[TieredModel]) -> None:
    def broken() -> TieredModel:
        return mutant(NUM_BLOCKS, BLOCK_SIZE, lambda _: None, host_blocks=HOST_BLOCKS)

    with pytest.raises(AssertionError):
        play_until_found(broken)
