"""Small loads and allocators for tests."""

from __future__ import annotations

import functools

import numpy as np

from prefix_cache.simulate.allocators import CONTIGUOUS, Allocator, Paged
from prefix_cache.simulate.experiment import server
from prefix_cache.simulate.request import Branch, Request
from prefix_cache.simulate.server import Server

NAMES = ("reserve_max", "pow2", "oracle", "paged", "paged_caching")


@functools.cache
def opt_13b() -> Server:
    """OPT-13B on an A100 with 40 GB, the server of most of the paper's figures."""
    return server("opt-13b", "a100-40g")


def allocator(name: str, num_slots: int, max_length: int = 64, block_size: int = 4) -> Allocator:
    if name in CONTIGUOUS:
        return CONTIGUOUS[name](num_slots, max_length)
    return Paged(num_slots, block_size, caching=name == "paged_caching")


def token_ids(count: int, first: int = 0) -> bytes:
    return np.arange(first, first + count, dtype="<u4").tobytes()


def request(
    prompt: int,
    answer: int,
    arrival_s: float = 0.0,
    *,
    width: int = 1,
    branches: tuple[Branch, ...] = (),
    first: int = 0,
) -> Request:
    """A request of so many tokens; the ids of its prompt count from ``first``."""
    return Request(
        arrival_s, token_ids(prompt, first), token_ids(answer, 1_000 + first), width, branches
    )
