"""The highest rate under a latency bound."""

from __future__ import annotations

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.simulate.allocators import ALLOCATORS
from prefix_cache.simulate.experiment import Experiment
from prefix_cache.simulate.lengths import SHAREGPT
from prefix_cache.simulate.outcome import Answered, Outcome
from prefix_cache.simulate.rates import sweep
from prefix_cache.simulate.workload import Workload
from tests.simulate.loads import opt_13b


def outcome_of(rate: float) -> Outcome:
    """A server that does ten requests a second, with latency 0.01 / (1.05 - rate / 10)."""
    latency = 0.01 / (1.05 - rate / 10) if rate < 10.5 else 100.0
    return Outcome(
        answered=[Answered(0.0, 0.0, latency)],
        answer_tokens=100,
        measured_s=1.0,
        generated_tokens=100 * min(rate, 10),
    )


def test_the_highest_rate_is_found_to_two_hundredths_of_what_the_server_does() -> None:
    found = sweep(outcome_of, bound_s=0.1)
    assert found.highest == pytest.approx(9.5, abs=0.2)
    assert found.at_highest.normalised_latency_s <= 0.1
    assert list(found.outcomes) == sorted(found.outcomes)


def test_a_bound_that_only_a_nearly_idle_server_keeps_is_found_too() -> None:
    assert sweep(outcome_of, bound_s=0.01).highest == pytest.approx(0.5, abs=0.2)


def test_what_a_server_cannot_do_for_long_is_not_sustained_though_the_bound_is_kept() -> None:
    assert sweep(outcome_of, bound_s=0.5).highest == pytest.approx(10)


def test_a_bound_that_cannot_be_kept_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match=r"0\.005 s per token cannot be had"):
        sweep(outcome_of, bound_s=0.005)


def test_paged_sustains_two_to_four_times_the_rate_of_reserve_max() -> None:
    load = Workload(lengths=SHAREGPT, num_requests=250)
    highest = {name: Experiment().sweep(opt_13b(), load, name).highest for name in ALLOCATORS}
    assert 2 < highest["paged"] / highest["reserve_max"] < 4
    assert highest["reserve_max"] < highest["pow2"] < highest["oracle"] < highest["paged"]
