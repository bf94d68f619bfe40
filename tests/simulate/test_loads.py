"""Loads: lengths as published, arrivals at random, equal by seed."""

from __future__ import annotations

import numpy as np
import pytest

from prefix_cache.simulate.beams import branches
from prefix_cache.simulate.chat import Chat
from prefix_cache.simulate.lengths import ALPACA, SHAREGPT, Given, LogNormal
from prefix_cache.simulate.workload import Workload


def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("lengths", "mean"),
    [
        (SHAREGPT.prompt, 161.31),
        (SHAREGPT.answer, 337.99),
        (ALPACA.prompt, 19.31),
        (ALPACA.answer, 58.45),
    ],
)
def test_lengths_have_the_published_mean(lengths: LogNormal, mean: float) -> None:
    drawn = lengths.draw(20_000, random())
    assert drawn.mean() == pytest.approx(mean, rel=0.03)
    assert drawn.min() >= lengths.low
    assert drawn.max() <= lengths.high


def test_sharegpt_is_heavy_tailed_and_alpaca_narrow() -> None:
    spreads = {
        name: np.quantile(lengths.draw(20_000, random()), 0.95) / lengths.mean
        for name, lengths in (("sharegpt", SHAREGPT.prompt), ("alpaca", ALPACA.prompt))
    }
    assert spreads["sharegpt"] > 3
    assert spreads["alpaca"] < 2


def test_given_lengths_come_in_order_and_begin_again() -> None:
    assert Given([(3, 1), (5, 2)]).draw(5, random()) == [
        (3, 1),
        (5, 2),
        (3, 1),
        (5, 2),
        (3, 1),
    ]


def test_at_another_rate_the_same_requests_come_in_other_time() -> None:
    load = Workload(lengths=ALPACA, num_requests=500)
    slow, fast = load.at_rate(2.0), load.at_rate(20.0)
    assert [(one.prompt, one.answer) for one in slow] == [(one.prompt, one.answer) for one in fast]
    assert slow[-1].arrival_s == pytest.approx(10 * fast[-1].arrival_s)
    gaps = np.diff([one.arrival_s for one in slow])
    assert gaps.mean() == pytest.approx(0.5, rel=0.1)
    assert gaps.std() == pytest.approx(0.5, rel=0.2)  # as that of an exponential distribution


def test_an_infinite_rate_brings_all_at_once() -> None:
    load = Workload(lengths=ALPACA, num_requests=5)
    assert [one.arrival_s for one in load.at_rate(float("inf"))] == [0.0] * 5


def test_a_shared_prefix_stands_in_front_of_every_prompt() -> None:
    first, second = Workload(lengths=ALPACA, num_requests=2, shared_prefix=80).at_rate(1.0)
    assert first.prompt[: 80 * 4] == second.prompt[: 80 * 4]
    assert first.prompt[80 * 4 :] != second.prompt[80 * 4 :]


def test_no_request_is_longer_than_what_is_served() -> None:
    load = Workload(lengths=Given([(900, 900), (2_000, 10)]), num_requests=2, max_length=1_000)
    assert [(one.prompt_tokens, one.answer_tokens) for one in load.at_rate(1.0)] == [
        (900, 100),
        (999, 1),
    ]


def test_a_turn_of_a_chat_begins_with_the_history_until_that_is_cut() -> None:
    turns = Chat(lengths=Given([(100, 200)]), num_requests=800, max_prompt=1_024).at_rate(1.0)
    by_length = {one.prompt_tokens for one in turns}
    assert by_length == {100, 400, 700, 1_000, 1_024}
    first = next(one for one in turns if one.prompt_tokens == 100)
    second = next(one for one in turns if one.prompt[: 100 * 4] == first.prompt and one != first)
    assert second.prompt[100 * 4 : 300 * 4] == first.answer


def test_most_prompts_of_a_chat_are_as_long_as_they_may_be() -> None:
    turns = Chat(lengths=SHAREGPT, num_requests=800).at_rate(1.0)
    assert np.mean([one.prompt_tokens == 1_024 for one in turns]) > 0.5
    assert max(one.prompt_tokens for one in turns) == 1_024


def test_beams_go_on_from_another_that_stays_in_that_step() -> None:
    found = branches(6, 400, random())
    losers = {(one.step, one.loser) for one in found}
    assert len(found) == pytest.approx(0.07 * 6 * 400, rel=0.15)
    assert not any((one.step, one.parent) in losers for one in found)
    assert [one.step for one in found] == sorted(one.step for one in found)
    assert found[-1].step < 399


def test_a_single_beam_has_nobody_to_branch_from() -> None:
    assert branches(1, 400, random()) == ()
