"""The state machine can fail: it notices each known fault, planted in one of its two sides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import invariant, run_state_machine_as_test

from . import mutants
from .machine import CacheMachine
from .tiered_model import TieredModel

UNTIL_FOUND = settings(
    max_examples=500,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


class MemoryMachine(CacheMachine):
    """Both sides are the same model, so that only the worker's memory can show a fault."""

    def new_cache(self, num_blocks: int, host_blocks: int) -> Any:
        return self.model_class(
            num_blocks, self.block_size, lambda _: None, host_blocks=host_blocks
        )

    @invariant()
    def same_events(self) -> None:
        pass


@pytest.mark.parametrize("mutant", mutants.ALL, ids=lambda mutant: mutant.__name__)
def test_comparing_finds(mutant: type[TieredModel]) -> None:
    class Machine(CacheMachine):
        model_class = mutant

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=UNTIL_FOUND)


@pytest.mark.parametrize("mutant", mutants.UNSAFE, ids=lambda mutant: mutant.__name__)
def test_the_workers_memory_alone_finds(mutant: type[TieredModel]) -> None:
    class Machine(MemoryMachine):
        model_class = mutant

    with pytest.raises(AssertionError):
        run_state_machine_as_test(Machine, settings=UNTIL_FOUND)


def test_the_workers_memory_has_nothing_against_the_unbroken_model() -> None:
    run_state_machine_as_test(MemoryMachine, settings=settings(UNTIL_FOUND, max_examples=50))
