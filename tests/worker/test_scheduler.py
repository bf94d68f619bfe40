"""Who runs when: first come, first served, and nobody passes the one whose turn it is."""

from __future__ import annotations

import pytest

from prefix_cache.errors import InvalidArgument
from prefix_cache.worker.engine_config import EngineConfig

from .engines import Bench, bench, greedy
from .fake_model import answer


def prompt(number: int, length: int) -> list[int]:
    return [(number * 17 + position) % 60 for position in range(length)]


def first_tokens(engine: Bench) -> list[str]:
    """Requests in the order of their first tokens."""
    order: list[str] = []
    while engine.engine.has_work:
        for output in engine.engine.step():
            if output.token_ids and output.id not in order:
                order.append(output.id)
    return order


def test_requests_begin_in_the_order_in_which_they_came() -> None:
    engine = bench(max_batch_tokens=32, max_sequences=4, max_n=4)
    for number in range(8):
        engine.add(str(number), prompt(number, 20 + number), greedy(3))

    assert first_tokens(engine) == [str(number) for number in range(8)]


def test_a_small_request_does_not_pass_a_large_one_that_waits_for_blocks() -> None:
    engine = bench(8)
    engine.add("running", prompt(0, 60), greedy(20))
    engine.engine.step()
    engine.add("large", prompt(1, 80), greedy(2))
    engine.add("small", prompt(2, 3), greedy(2))

    assert first_tokens(engine) == ["running", "large", "small"]


def test_who_came_in_the_same_message_as_one_that_was_refused_waits_behind_it() -> None:
    engine = bench(8)
    engine.add("running", prompt(0, 60), greedy(20))
    engine.add("large", prompt(1, 80), greedy(2))
    engine.add("small", prompt(2, 3), greedy(2))
    engine.engine.step()

    assert engine.cache.stats().live_sequences == 2  # one of them to be released
    engine.engine.step()
    assert engine.cache.stats().live_sequences == 1
    assert first_tokens(engine) == ["running", "large", "small"]


def test_a_refused_request_is_not_asked_for_again_until_something_has_ended() -> None:
    engine = bench(8)
    engine.add("running", prompt(0, 60), greedy(20))
    engine.engine.step()
    engine.add("large", prompt(1, 80), greedy(2))
    engine.run()

    asked = [
        number
        for number, message in enumerate(engine.messages)
        if any(type(part).__name__ == "Acquire" for part in message)
    ]
    assert asked == [0, 1, 20]


def test_no_more_sequences_run_than_there_are_seats() -> None:
    engine = bench(max_sequences=5, max_n=4)
    engine.add("three", prompt(0, 20), greedy(6, n=3))
    engine.add("four", prompt(1, 20), greedy(6, n=4))
    engine.add("one", prompt(2, 20), greedy(6))
    most = 0

    def look(_: object) -> None:
        nonlocal most
        most = max(most, engine.cache.stats().live_sequences)

    answers = engine.run(look)

    assert most == 5
    assert answers["one", 0] == answer(prompt(2, 20), greedy(6))
    assert {name: sum(key[0] == name for key in answers) for name in ("three", "four")} == {
        "three": 3,
        "four": 4,
    }


def test_short_prompts_are_admitted_together() -> None:
    engine = bench(max_batch_tokens=64, max_sequences=16)
    for number in range(8):
        engine.add(str(number), prompt(number, 10), greedy(2))
    engine.engine.step()

    assert [part.count for part in engine.model.batches[0]] == [10] * 6 + [4]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_batch_tokens": 0}, "max_batch_tokens is 0, expected at least 1"),
        ({"max_model_len": 0}, "max_model_len is 0, expected at least 1"),
        (
            {"max_batch_tokens": 8},
            "max_sequences is 64, expected at most max_batch_tokens, which is 8",
        ),
        ({"max_n": 65}, "max_n is 65, expected at most max_sequences, which is 64"),
        ({"preemption": "x"}, "preemption is 'x', expected one of auto, recompute, swap"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        EngineConfig(**settings)  # type: ignore[arg-type]
    assert str(caught.value) == message
