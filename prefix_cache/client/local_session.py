"""A session with an index in this process: the operations of a step without gRPC.

An engine that is written against ``CacheSession`` runs on either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from prefix_cache.client.operations import (
    Acknowledge,
    Acknowledged,
    Acquire,
    Append,
    Commit,
    Fork,
    Forked,
    Operation,
    Release,
    Released,
    Result,
)
from prefix_cache.client.requests import uint32, uint64
from prefix_cache.client.results import AcquiredSequence, Appended, Committed
from prefix_cache.errors import PrefixCacheError
from prefix_cache.index.cache import BlockCache
from prefix_cache.index.sequence import Sequence as LiveSequence
from prefix_cache.index.tokens import as_token_bytes
from prefix_cache.sequence_numbers import SequenceNumbers


class CacheSession(Protocol):
    """What an engine works with: the cache of its KV memory, one step at a time.

    ``block_size`` is in tokens; ``num_blocks`` are the blocks of the GPU, and ``host_blocks``
    those that the host has room for.
    """

    block_size: int
    num_blocks: int
    host_blocks: int

    def step(self, operations: Sequence[Operation]) -> list[Result]:
        """Carry out the operations in order; return one result for each.

        An operation that failed has changed nothing and its result is the error.  What is no
        operation at all, such as a negative token, raises, and nothing is carried out then.
        """


class LocalSession:
    """A ``CacheSession`` with ``cache``, which answers as a node's would."""

    def __init__(self, cache: BlockCache) -> None:
        self.block_size = cache.block_size
        self.num_blocks = cache.num_blocks
        self.host_blocks = cache.host_blocks
        self._cache = cache
        self._sequences: SequenceNumbers[LiveSequence] = SequenceNumbers()

    def step(self, operations: Sequence[Operation]) -> list[Result]:
        """Carry out the operations in order; return one result for each."""
        return [_result(call) for call in [self._checked(operation) for operation in operations]]

    def _checked(self, operation: Operation) -> Callable[[], Result]:
        """Return what carries it out; raise for what no message to a node would hold."""
        number = uint64("sequence_id", operation.sequence_id)
        match operation:
            case Acquire():
                return partial(self._acquire, number, as_token_bytes(operation.tokens), operation)
            case Append(_, tokens):
                return partial(self._append, number, as_token_bytes(tokens))
            case Commit(_, num_tokens):
                return partial(self._commit, number, uint32("num_tokens", num_tokens))
            case Fork(_, parent):
                return partial(self._fork, number, uint64("parent_sequence_id", parent))
            case Release():
                return partial(self._release, number)
            case Acknowledge(copy_id, lost):
                return partial(self._acknowledge, uint64("copy_id", copy_id), lost)

    def _acquire(self, number: int, prompt: bytes, asked: Acquire) -> AcquiredSequence:
        self._sequences.check_free(number)
        opened = self._cache.acquire(
            asked.identity,
            prompt,
            asked.extra_keys,
            after=asked.after,
            resumed=asked.resumed,
            load=asked.load,
        )
        self._sequences[number] = opened
        return AcquiredSequence(
            id=number,
            num_cached_tokens=opened.num_cached_tokens,
            num_tokens=opened.num_tokens,
            block_table=opened.block_table,
            lease_s=None,
            num_loaded_tokens=opened.num_loaded_tokens,
            copies=opened.copies,
        )

    def _append(self, number: int, tokens: bytes) -> Appended:
        sequence = self._sequences[number]
        appended = self._cache.append(sequence, tokens)
        return Appended(
            new_block_ids=appended.new_block_ids,
            copies=appended.copies,
            num_tokens=sequence.num_tokens,
            offloads=appended.offloads,
            copy_id=appended.copy_id,
        )

    def _commit(self, number: int, num_tokens: int) -> Committed:
        sequence = self._sequences[number]
        self._cache.commit(sequence, num_tokens)
        return Committed(sequence.num_committed_tokens, sequence.findable_prefix)

    def _fork(self, number: int, parent: int) -> Forked:
        self._sequences.check_free(number)
        self._sequences[number] = self._cache.fork(self._sequences[parent])
        return Forked()

    def _release(self, number: int) -> Released:
        self._cache.release(self._sequences[number])
        del self._sequences[number]
        return Released()

    def _acknowledge(self, copy_id: int, lost: bool) -> Acknowledged:
        if lost:
            self._cache.withdraw(copy_id)
        else:
            self._cache.acknowledge(copy_id)
        return Acknowledged()


def _result(call: Callable[[], Result]) -> Result:
    try:
        return call()
    except PrefixCacheError as error:
        return error
