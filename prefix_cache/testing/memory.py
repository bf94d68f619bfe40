"""The KV memory of a test engine: an exact prefix cache of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from prefix_cache.errors import PoolExhausted, PromptTooLarge
from prefix_cache.index import BlockCache, Identity
from prefix_cache.index.sequence import Sequence
from prefix_cache.index.tokens import TOKEN_BYTES


class OpenSequence(Protocol):
    """A sequence that holds its blocks while it is open."""

    num_cached_tokens: int

    async def commit(self, num_tokens: int) -> None:
        """Say that the KV of the first ``num_tokens`` tokens is written."""


class Memory(Protocol):
    """KV memory: what of a prompt it holds, and room for the rest."""

    def sequence(
        self, identity: Identity, prompt: bytes, answer: bytes
    ) -> AbstractAsyncContextManager[OpenSequence]:
        """Open a sequence with room for prompt and answer (uint32 little-endian).

        Waits for blocks that are in use.  Raises ``PromptTooLarge`` for more than there are.
        """


class OwnMemory:
    """KV memory that this engine alone knows."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.cache = BlockCache(num_blocks, block_size)
        self._released = asyncio.Event()

    def wipe(self) -> None:
        """Lose everything and tell nobody; open sequences end in the memory they began in."""
        self.cache = BlockCache(self.cache.num_blocks, self.cache.block_size)
        self._released.set()

    @asynccontextmanager
    async def sequence(
        self, identity: Identity, prompt: bytes, answer: bytes
    ) -> AsyncIterator[OpenSequence]:
        """Open a sequence, as ``Memory`` says."""
        num_tokens = (len(prompt) + len(answer)) // TOKEN_BYTES
        if num_tokens > self.cache.num_blocks * self.cache.block_size:
            raise PromptTooLarge(
                f"prompt and answer have {num_tokens} tokens, expected at most "
                f"{self.cache.num_blocks * self.cache.block_size}",
                num_tokens=num_tokens,
            )
        while (opened := self._open(identity, prompt, answer)) is None:
            self._released.clear()
            await self._released.wait()
        try:
            yield opened
        finally:
            opened.release()
            self._released.set()

    def _open(self, identity: Identity, prompt: bytes, answer: bytes) -> _OwnSequence | None:
        """Open a sequence, or None while there is no room."""
        try:
            sequence = self.cache.acquire(identity, prompt)
        except PoolExhausted:
            return None
        try:
            self.cache.append(sequence, answer)
        except PoolExhausted:
            self.cache.release(sequence)
            return None
        return _OwnSequence(self.cache, sequence)


class _OwnSequence:
    def __init__(self, cache: BlockCache, sequence: Sequence) -> None:
        self._cache = cache
        self._sequence = sequence
        self.num_cached_tokens = sequence.num_cached_tokens

    async def commit(self, num_tokens: int) -> None:
        self._cache.commit(self._sequence, num_tokens)

    def release(self) -> None:
        self._cache.release(self._sequence)
