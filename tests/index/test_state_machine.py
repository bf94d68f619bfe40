"""The cache agrees with the naive model after every step of random histories."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from prefix_cache.index.block_hash import HashFunction

from .machine import CacheMachine

THOROUGH = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def all_equal(_parent: bytes, _block: bytes, _extra: bytes) -> bytes:
    return bytes(8)


def first_byte(_parent: bytes, block: bytes, _extra: bytes) -> bytes:
    """Blocks that begin alike collide, whatever came before them."""
    return block[:1].ljust(8, b"\0")


class ConstantHash(CacheMachine):
    def hash_function(self) -> HashFunction:
        return all_equal


class ShortHash(CacheMachine):
    def hash_function(self) -> HashFunction:
        return first_byte


def test_cache_and_model_agree() -> None:
    run_state_machine_as_test(CacheMachine, settings=THOROUGH)


def test_cache_and_model_agree_when_all_hashes_are_equal() -> None:
    run_state_machine_as_test(ConstantHash, settings=THOROUGH)


def test_cache_and_model_agree_when_most_hashes_collide() -> None:
    run_state_machine_as_test(ShortHash, settings=THOROUGH)
