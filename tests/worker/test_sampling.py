from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from prefix_cache.errors import InvalidArgument
from prefix_cache.worker.sampling import SamplingParams, sample

LOGITS = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()


def draws(params: SamplingParams, count: int, logits: Tensor = LOGITS) -> list[int]:
    """Tokens drawn one after another by one answer."""
    generator = params.generator(0)
    return [sample(logits[None], [params], [generator])[0] for _ in range(count)]


def test_at_temperature_zero_the_most_likely_token_is_taken() -> None:
    assert draws(SamplingParams(1, temperature=0), 5) == [0, 0, 0, 0, 0]


def test_tokens_come_as_often_as_they_are_likely() -> None:
    counts = Counter(draws(SamplingParams(1, seed=1), 4000))
    assert [counts[token] for token in range(4)] == pytest.approx([2000, 1200, 600, 200], abs=100)


def test_temperature_two_flattens_to_square_roots() -> None:
    counts = Counter(draws(SamplingParams(1, temperature=2.0, seed=1), 4000))
    roots = [math.sqrt(p) for p in (0.5, 0.3, 0.15, 0.05)]
    expected = [4000 * root / sum(roots) for root in roots]
    assert [counts[token] for token in range(4)] == pytest.approx(expected, abs=100)


def test_top_p_keeps_the_fewest_tokens_that_reach_it() -> None:
    assert set(draws(SamplingParams(1, top_p=0.75, seed=1), 200)) == {0, 1}
    assert set(draws(SamplingParams(1, top_p=0.85, seed=1), 200)) == {0, 1, 2}
    assert set(draws(SamplingParams(1, top_p=1e-9, seed=1), 200)) == {0}


def test_top_p_keeps_shares_and_ignores_the_order_of_tokens() -> None:
    backwards = draws(SamplingParams(1, top_p=0.75, seed=1), 4000, LOGITS.flip(0))
    assert Counter(backwards)[3] == pytest.approx(4000 * 0.5 / 0.8, abs=100)


def test_what_has_no_probability_is_never_taken() -> None:
    logits = torch.tensor([-math.inf, 0.0, -math.inf])
    assert set(draws(SamplingParams(1, temperature=2.0), 50, logits)) == {1}


def test_huge_logits_and_tiny_temperatures_do_not_overflow() -> None:
    logits = torch.tensor([3e38, 2e38, -3e38])
    assert draws(SamplingParams(1, temperature=1e-300), 3, logits) == [0, 0, 0]


def test_the_same_seed_gives_the_same_tokens_whoever_is_in_the_batch() -> None:
    params = SamplingParams(1, seed=7)
    alone = draws(params, 20)
    mates = [SamplingParams(1), SamplingParams(1, temperature=0), SamplingParams(1, top_p=0.5)]
    generator, theirs = params.generator(0), [mate.generator(0) for mate in mates]
    together = []
    for step in range(20):
        place = step % 4
        batch = [*mates[:place], params, *mates[place:]]
        generators = [*theirs[:place], generator, *theirs[place:]]
        together.append(sample(LOGITS.expand(4, -1), batch, generators)[place])
    assert together == alone == [1, 2, 1, 0, 0, 2, 0, 2, 1, 0, 0, 0, 0, 0, 1, 1, 3, 1, 1, 3]


def test_answers_of_one_request_differ_and_seeds_may_be_negative() -> None:
    params = SamplingParams(1, seed=-1, n=2)
    first, second = params.generator(0), params.generator(1)
    assert first.random() != second.random()
    assert params.generator(1).random() == SamplingParams(1, seed=-1).generator(1).random()


def test_without_a_seed_each_answer_has_its_own_chance() -> None:
    assert SamplingParams(1).generator(0).random() != SamplingParams(1).generator(0).random()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_tokens": 0}, "max_tokens is 0, expected an integer from 1"),
        ({"temperature": -0.1}, "temperature is -0.1, expected a number from 0 to 2"),
        ({"temperature": 2.1}, "temperature is 2.1, expected a number from 0 to 2"),
        ({"temperature": 10**400}, "temperature is 10+, expected a number from 0 to 2"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": "hot"}, "temperature is 'hot'"),
        ({"temperature": True}, "temperature is True"),
        ({"top_p": 0}, "top_p is 0, expected a number above 0, at most 1"),
        ({"top_p": 1.01}, "top_p is 1.01"),
        ({"top_p": math.inf}, "top_p is inf"),
        ({"seed": 2**63}, r"seed is 9223372036854775808, expected none or an integer from -2\^63"),
        ({"seed": 1.5}, "seed is 1.5"),
        ({"stop": ("",)}, r"stop is \('',\), expected a tuple of at most 16 strings, none of them"),
        ({"stop": ("a",) * 17}, "stop is"),
        ({"stop": "a"}, "stop is 'a'"),
        ({"n": 0}, "n is 0, expected an integer from 1"),
        ({"n": 3, "beam_width": 2}, "beam_width is 2, expected 0 or an integer from n, which is 3"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as error:
        SamplingParams(**{"max_tokens": 1} | changes)
    name, value = list(changes.items())[-1]
    assert str(error.value.details[name]) == str(value)


def test_the_ends_of_every_range_are_taken() -> None:
    SamplingParams(1, temperature=2, top_p=1e-9, seed=-(2**63), stop=("a",) * 16, n=2, beam_width=2)
    SamplingParams(1, temperature=0, top_p=1, seed=2**63 - 1)
