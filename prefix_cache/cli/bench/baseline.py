"""The usual block manager, for comparison: one hash, one entry and one count per block."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol, TypeVar

import xxhash

from prefix_cache.index.identity import Identity
from prefix_cache.index.tokens import TOKEN_BYTES, Tokens, as_token_bytes

Sequence = TypeVar("Sequence")


class Cache(Protocol[Sequence]):
    """What is measured of the index, and what the usual block manager can do, too."""

    def match(self, identity: Identity, tokens: Tokens) -> object:
        """Find the longest cached prefix."""

    def acquire(self, identity: Identity, tokens: Tokens) -> Sequence:
        """Open a sequence."""

    def commit(self, seq: Sequence, num_tokens: int) -> None:
        """Make the full blocks of the first ``num_tokens`` tokens findable."""

    def append(self, seq: Sequence, token_ids: Tokens) -> object:
        """Add tokens."""

    def release(self, seq: Sequence) -> None:
        """End a sequence."""


@dataclass
class NaiveSequence:
    """A live sequence: tokens, block table, hashes of its full blocks behind that of the root."""

    tokens: bytearray
    table: list[int]
    chain: list[bytes]
    committed_blocks: int


class NaiveBlockCache:
    """Finds, counts and evicts block by block.  Knows no forks, extra keys, events or errors."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._block_bytes = block_size * TOKEN_BYTES
        self._users = [0] * num_blocks
        self._block_of: dict[bytes, int] = {}
        self._hash_of: dict[int, bytes] = {}
        self._unused = OrderedDict.fromkeys(range(num_blocks))  # least recently used first

    def match(self, identity: Identity, tokens: Tokens) -> list[int]:
        """Cached blocks of the longest prefix that leaves a token to compute."""
        prompt = as_token_bytes(tokens)
        return self._find(self._chain(identity, prompt), len(prompt))

    def acquire(self, identity: Identity, tokens: Tokens) -> NaiveSequence:
        """Open a sequence."""
        prompt = as_token_bytes(tokens)
        chain = self._chain(identity, prompt)
        table = self._find(chain, len(prompt))
        cached = len(table)
        for block in table:
            self._use(block)
        while len(table) * self._block_bytes < len(prompt):
            table.append(self._take())
        return NaiveSequence(bytearray(prompt), table, chain, cached)

    def append(self, seq: NaiveSequence, token_ids: Tokens) -> None:
        """Add tokens."""
        seq.tokens += as_token_bytes(token_ids)
        while len(seq.table) * self._block_bytes < len(seq.tokens):
            seq.table.append(self._take())
        self._extend(seq.chain, seq.tokens)

    def commit(self, seq: NaiveSequence, num_tokens: int) -> None:
        """Make the full blocks of the first ``num_tokens`` tokens findable."""
        full = num_tokens // self._block_size
        for index in range(seq.committed_blocks, full):
            block, block_hash = seq.table[index], seq.chain[index + 1]
            if block_hash not in self._block_of:
                self._block_of[block_hash] = block
                self._hash_of[block] = block_hash
        seq.committed_blocks = max(full, seq.committed_blocks)

    def release(self, seq: NaiveSequence) -> None:
        """End a sequence; its tail is evicted first."""
        for block in reversed(seq.table):
            self._users[block] -= 1
            if not self._users[block]:
                self._unused[block] = None
                if block not in self._hash_of:
                    self._unused.move_to_end(block, last=False)

    def _chain(self, identity: Identity, prompt: bytes) -> list[bytes]:
        chain = [identity.encode(self._block_size)]
        self._extend(chain, prompt)
        return chain

    def _extend(self, chain: list[bytes], tokens: bytes | bytearray) -> None:
        hashed = (len(chain) - 1) * self._block_bytes
        for start in range(hashed, len(tokens) - self._block_bytes + 1, self._block_bytes):
            block = tokens[start : start + self._block_bytes]
            chain.append(xxhash.xxh3_128_digest(chain[-1] + block))

    def _find(self, chain: list[bytes], num_bytes: int) -> list[int]:
        blocks = []
        for block_hash in chain[1 : (num_bytes - TOKEN_BYTES) // self._block_bytes + 1]:
            block = self._block_of.get(block_hash)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def _use(self, block: int) -> None:
        if not self._users[block]:
            del self._unused[block]
        self._users[block] += 1

    def _take(self) -> int:
        block, _ = self._unused.popitem(last=False)
        if block_hash := self._hash_of.pop(block, None):
            del self._block_of[block_hash]
        self._users[block] = 1
        return block
