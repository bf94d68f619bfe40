"""Servers, loads and allocators by name, brought together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from prefix_cache.errors import InvalidArgument
from prefix_cache.simulate.allocators import CONTIGUOUS, Allocator, Paged
from prefix_cache.simulate.outcome import Outcome
from prefix_cache.simulate.preemption import RECOMPUTE_NEWEST, Preemption
from prefix_cache.simulate.rates import LATENCY_BOUND_S, Sweep, sweep
from prefix_cache.simulate.server import Server
from prefix_cache.simulate.serving import serve
from prefix_cache.simulate.workload import Load
from prefix_cache.sizing import gpu, shape_of

BLOCK_SIZE = 16


def server(model: str, card: str, num_gpus: int = 1, max_length: int = 2_048) -> Server:
    """Return the server of a model and a card by name.  Raises InvalidArgument."""
    return Server(shape_of(model), gpu(card), num_gpus, max_length)


def allocator(name: str, on: Server, block_size: int = BLOCK_SIZE) -> Allocator:
    """Return a new allocator of all KV memory of a server: ``ALLOCATORS``, or paged_caching."""
    if name in CONTIGUOUS:
        return CONTIGUOUS[name](on.num_slots, on.max_length)
    if block_size > on.num_slots:
        raise InvalidArgument(
            f"a block of {block_size} tokens is larger than all memory, {on.num_slots} slots",
            block_size=block_size,
        )
    return Paged(on.num_slots, block_size, caching=name == "paged_caching")


@dataclass(frozen=True)
class Experiment:
    """Runs with one ``seed``; ``on_run`` is called after each of them."""

    seed: int = 0
    on_run: Callable[[], None] = lambda: None
    bound_s: float = LATENCY_BOUND_S

    def serve(
        self,
        on: Server,
        load: Load,
        requests_per_s: float,
        by: str,
        *,
        block_size: int = BLOCK_SIZE,
        preemption: Preemption = RECOMPUTE_NEWEST,
    ) -> Outcome:
        """Serve a load at a rate with an allocator."""
        outcome = serve(load.at_rate(requests_per_s), allocator(by, on, block_size), on, preemption)
        self.on_run()
        return outcome

    def sweep(self, on: Server, load: Load, by: str, *, block_size: int = BLOCK_SIZE) -> Sweep:
        """Find the highest rate under the latency bound."""
        return sweep(
            lambda rate: self.serve(on, load, rate, by, block_size=block_size), self.bound_s
        )
