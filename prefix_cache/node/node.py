"""The node behind its gRPC face: the index, and whom it lets in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from typing import Literal

from prefix_cache.errors import Draining, IdentityMismatch
from prefix_cache.index import BlockCache, Identity, Match, Sequence, Snapshot
from prefix_cache.node.config import NodeConfig
from prefix_cache.node.event_log import EventLog
from prefix_cache.node.measurements import Measurements
from prefix_cache.node.quotas import Quotas
from prefix_cache.node.worker_epochs import WorkerEpochs
from prefix_cache.v1 import node_pb2
from prefix_cache.wire import extra_keys_from_wire, identity_from_wire, prefix_from_prompt

# Why copies between GPU and host will not be made: their client said so, or did not acknowledge
# them in time, or has ended.
Withdrawal = Literal["lost", "timeout", "ended"]


class Node:
    """One worker's index.

    Everything here is synchronous and runs on one event loop: each call is one step, without
    locks.  Who has sequences has put a function into ``on_claims_lost`` that ends them.
    """

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.measurements = Measurements()
        self.log = EventLog(random_id(), self._snapshot, config.event_log_bytes)
        self.cache = BlockCache(
            config.num_blocks,
            config.block_size,
            host_blocks=config.host_blocks,
            on_event=self.log.record,
        )
        self.epochs = WorkerEpochs()
        self.quotas = Quotas(config)
        self.leases_expired = 0
        self.withdrawn_copies: dict[Withdrawal, int] = {"lost": 0, "timeout": 0, "ended": 0}
        self.on_claims_lost: set[Callable[[], None]] = set()
        self.draining = False
        self._no_sequence_left = asyncio.Event()

    @property
    def incarnation(self) -> int:
        """Which life of the node's claims this is."""
        return self.log.incarnation

    def match(self, prompt: node_pb2.Prompt) -> Match:
        """Find the longest cached prefix."""
        identity = self.admit(prompt)
        return self.cache.match(
            identity,
            prompt.tokens,
            extra_keys_from_wire(prompt.extra_keys),
            after=prefix_from_prompt(prompt),
        )

    def acquire(self, request: node_pb2.AcquireRequest | node_pb2.AcquireOperation) -> Sequence:
        """Open a sequence."""
        self.check_not_draining()
        prompt = request.prompt
        identity = self.admit(prompt)
        return self.cache.acquire(
            identity,
            prompt.tokens,
            extra_keys_from_wire(prompt.extra_keys),
            after=prefix_from_prompt(prompt),
            resumed=request.resumed,
            load=not request.without_host,
        )

    def fork(self, sequence: Sequence) -> Sequence:
        """Open a sequence that shares every block."""
        self.check_not_draining()
        return self.cache.fork(sequence)

    def release(self, sequence: Sequence) -> None:
        """End a sequence."""
        self.cache.release(sequence)
        # Only a drain waits for that, and it forgets what was said before.
        if self.draining and not self.cache.stats().live_sequences:
            self._no_sequence_left.set()

    def withdraw(self, copy_id: int, why: Withdrawal) -> None:
        """Give up copies that will not be made.  Raises ``UnknownCopy``."""
        self.cache.withdraw(copy_id)
        self.withdrawn_copies[why] += 1

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that the table of so many tokens has."""
        return -(-num_tokens // self.config.block_size)

    def meet_worker(self, epoch: int) -> None:
        """Take note of a worker of this epoch; a new one says that the KV memory is gone.

        So does the first one, of all that was claimed before.  Raises ``WorkerRestarted`` for an
        epoch that has ended.
        """
        is_first, stats = not self.epochs.current, self.cache.stats()
        claims_something = bool(stats.cached or stats.host_cached or stats.live_sequences)
        if self.epochs.begin(epoch) and (claims_something or not is_first):
            self.lose_claims()

    def lose_claims(self) -> None:
        """End every sequence and drop every block, as their KV is gone: a new incarnation."""
        for end_sequences in tuple(self.on_claims_lost):
            end_sequences()
        self.cache.reset()
        self.log.begin(random_id())

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

    def admit(self, prompt: node_pb2.Prompt) -> Identity:
        """Return whose KV a prompt asks for.  Raises ``IdentityMismatch``."""
        identity = identity_from_wire(prompt.identity)
        if self.config.model and not identity.model:
            raise _mismatch("model", identity.model, self.config.model)
        self.check_client(prompt.block_size, identity.model, identity.kv_dtype)
        return identity

    async def drain(self) -> None:
        """Take no new sequences; return when none is left.  Watchers are let go at the end."""
        self.draining = True
        self._no_sequence_left.clear()
        try:
            if self.cache.stats().live_sequences:
                await self._no_sequence_left.wait()
        finally:
            self.log.close()

    def _snapshot(self, with_tokens: bool) -> Snapshot:
        return self.cache.snapshot(with_tokens=with_tokens)


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
