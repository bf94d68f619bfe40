"""The node behind its gRPC face: the index, and whom it lets in."""

from __future__ import annotations

import asyncio
import secrets

from prefix_cache.errors import Draining, IdentityMismatch, Unsupported
from prefix_cache.index import BlockCache, Identity, Match, Sequence
from prefix_cache.node.config import NodeConfig
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import extra_keys_from_wire, identity_from_wire


class Node:
    """One worker's index.

    Everything here is synchronous and runs on one event loop: each call is one step, without
    locks.  ``incarnation`` is which life of the node's claims this is.
    """

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.cache = BlockCache(config.num_blocks, config.block_size)
        self.incarnation = random_id()
        self.draining = False
        self._no_sequence_left = asyncio.Event()

    def match(self, prompt: node_pb2.Prompt) -> Match:
        """Find the longest cached prefix."""
        identity = self._admit(prompt)
        return self.cache.match(identity, prompt.tokens, extra_keys_from_wire(prompt.extra_keys))

    def acquire(self, prompt: node_pb2.Prompt) -> Sequence:
        """Open a sequence."""
        self.check_not_draining()
        identity = self._admit(prompt)
        return self.cache.acquire(identity, prompt.tokens, extra_keys_from_wire(prompt.extra_keys))

    def fork(self, sequence: Sequence) -> Sequence:
        """Open a sequence that shares every block."""
        self.check_not_draining()
        return self.cache.fork(sequence)

    def release(self, sequence: Sequence) -> None:
        """End a sequence."""
        self.cache.release(sequence)
        if not self.cache.stats().live_sequences:
            self._no_sequence_left.set()

    def check_not_draining(self) -> None:
        """Raise ``Draining`` once no new sequences are taken."""
        if self.draining:
            raise Draining(
                f"node {self.config.name!r} is draining: no new sequences, use another node",
                node=self.config.name,
            )

    def check_client(self, block_size: int, model: str, kv_dtype: str) -> None:
        """Raise ``IdentityMismatch`` unless the client works as the node does.

        What the client leaves empty or 0, or the node serves any of, is not compared.
        """
        config = self.config
        for field, client, node in (
            ("block_size", block_size, config.block_size),
            ("model", model, config.model),
            ("kv_dtype", kv_dtype, config.kv_dtype),
        ):
            if client and node and client != node:
                raise _mismatch(field, client, node)

    async def drain(self) -> None:
        """Take no new sequences; return when none is left."""
        self.draining = True
        self._no_sequence_left.clear()
        if self.cache.stats().live_sequences:
            await self._no_sequence_left.wait()

    def _admit(self, prompt: node_pb2.Prompt) -> Identity:
        if prompt.parent_block_hash or prompt.parent_num_tokens:
            raise Unsupported(
                "this node does not take prompts as deltas: leave `parent_block_hash` and "
                "`parent_num_tokens` unset and send all tokens",
                field="parent_block_hash",
            )
        identity = identity_from_wire(prompt.identity)
        if self.config.model and not identity.model:
            raise _mismatch("model", identity.model, self.config.model)
        self.check_client(prompt.block_size, identity.model, identity.kv_dtype)
        return identity


def random_id() -> int:
    """Return a random number that fits a signed 64-bit field and is not 0."""
    return secrets.randbelow(2**63 - 1) + 1


def _mismatch(field: str, client: object, node: object) -> IdentityMismatch:
    return IdentityMismatch(
        f"the client's {field} is {client!r}, this node's is {node!r}",
        field=field,
        client=client,
        node=node,
    )
