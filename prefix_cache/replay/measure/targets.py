"""What requests are replayed against; here, a cache in this process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from prefix_cache.index import BlockCache, Identity
from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.replay.formats import Request


@dataclass(frozen=True, slots=True)
class Served:
    """Of a prompt, ``cached_words`` were cached at ``node``; None: all full blocks seen before."""

    cached_words: int | None
    node: str = ""


class Target(Protocol):
    """Serves requests; ``block_words`` is the size of its blocks."""

    @property
    def block_words(self) -> int:
        """Words of a block."""

    def serve(self, request: Request) -> Served:
        """Serve one request to its end.

        Raises PrefixCacheError when it is not served, for example because it exceeds the pool.
        """


class UnlimitedCache:
    """A ``LocalCache`` that never evicts: it has what was played before, and keeps nothing."""

    def __init__(self, block_words: int) -> None:
        self._block_words = block_words

    @property
    def block_words(self) -> int:
        """Words of a block."""
        return self._block_words

    def serve(self, request: Request) -> Served:
        """Serve one request."""
        return Served(None)


class LocalCache:
    """A ``BlockCache`` that serves one request after the other.

    The answer is there as soon as the prompt, as one sequence: what an engine computes again of
    it, because another sequence has it already, takes no block of its own.
    """

    def __init__(self, num_blocks: int, block_words: int) -> None:
        self._cache = BlockCache(num_blocks, block_words)
        self._who = Identity(model="replay")

    @property
    def block_words(self) -> int:
        """Words of a block."""
        return self._cache.block_size

    def serve(self, request: Request) -> Served:
        """Serve one request.  Raises PromptTooLarge for one that exceeds the pool."""
        cache, words = self._cache, request.prompt + request.answer
        cached = cache.match(self._who, request.prompt).num_cached_tokens if request.answer else 0
        sequence = cache.acquire(self._who, words)
        cache.commit(sequence, len(words) // TOKEN_BYTES)
        cache.release(sequence)
        return Served(cached if request.answer else sequence.num_cached_tokens)
