"""Chain hashes of prompts: what a conversation had before is recognised, not hashed again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefix_cache.index.block_hash import BlockHasher
from prefix_cache.index.identity import Identity
from prefix_cache.index.tokens import TOKEN_BYTES
from router.prompts.byte_lru import ByteLRU
from router.turn import ConversationKey

_REMEMBERED_BYTES = 256 * 1024 * 1024
_BYTES_PER_HASH = 64


@dataclass(frozen=True, slots=True)
class _Chain:
    identity: Identity
    tokens: bytes
    """Of whole blocks."""
    hashes: list[bytes]


class TokenChains:
    """Makes chain hashes of blocks of ``block_size`` tokens, as a cache node does.

    The last chain of each conversation is remembered, in at most ``max_bytes`` in all.
    """

    def __init__(self, block_size: int, max_bytes: int = _REMEMBERED_BYTES) -> None:
        self.block_size = block_size
        self._block_bytes = block_size * TOKEN_BYTES
        self._hasher = BlockHasher(block_size, None)
        self._chains: ByteLRU[ConversationKey, _Chain] = ByteLRU(max_bytes)

    def hashes(
        self, conversation: ConversationKey | None, identity: Identity, tokens: bytes
    ) -> list[bytes]:
        """Return the hashes of the full blocks of ``tokens`` (uint32 little-endian)."""
        tokens = tokens[: len(tokens) // self._block_bytes * self._block_bytes]
        known: list[bytes] = []
        if conversation is not None:
            before = self._chains.get(conversation)
            if before is not None and before.identity == identity:
                known = before.hashes[: self._common_blocks(before.tokens, tokens)]
        parent = known[-1] if known else self._hasher.root(identity)
        rest = self._hasher.chain(parent, tokens[len(known) * self._block_bytes :], {})
        hashes = [*known, *self._hasher.split(rest)]
        if conversation is not None:
            size = len(tokens) + len(hashes) * _BYTES_PER_HASH
            self._chains.put(conversation, _Chain(identity, tokens, hashes), size)
        return hashes

    def _common_blocks(self, before: bytes, tokens: bytes) -> int:
        """How many blocks both begin with."""
        if tokens.startswith(before):
            return len(before) // self._block_bytes
        length = min(len(before), len(tokens))
        differs = np.frombuffer(before[:length], np.uint8) != np.frombuffer(
            tokens[:length], np.uint8
        )
        first = int(differs.argmax()) if differs.any() else length
        return first // self._block_bytes
