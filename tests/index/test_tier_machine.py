"""Cache and naive model agree with a host tier, and the machine that says so can fail."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from prefix_cache.index.block_hash import HashFunction

from . import tier_mutants
from .test_machine_finds_faults import UNTIL_FOUND
from .test_state_machine import THOROUGH, first_byte
from .tier_machine import TierMachine
from .tiered_model import TieredModel


class ShortHash(TierMachine):
    def hash_function(self) -> HashFunction:
        return first_byte


def test_cache_and_model_agree() -> None:
    run_state_machine_as_test(TierMachine, settings=THOROUGH)


def test_cache_and_model_agree_when_most_hashes_collide() -> None:
    run_state_machine_as_test(ShortHash, settings=settings(THOROUGH, max_examples=50))


@pytest.mark.parametrize("mutant", tier_mutants.ALL, ids=lambda mutant: mutant.__name__)
def test_comparing_finds(mutant: type[TieredModel]) -> None:
    class Machine(TierMachine):
        model_class = mutant

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=UNTIL_FOUND)
