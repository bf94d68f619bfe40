"""A thousand requests on a small pool are answered as on one that never runs out."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from prefix_cache.worker.loading import LoadedModel
from prefix_cache.worker.request import GenerationRequest
from prefix_cache.worker.sampling import SamplingParams

from .workers import Worker, collect, worker

NUM_BLOCKS = 16
TEXTS = [
    "Once upon a time there was a little boy named Tim. He had a red ball and a blue car.",
    "Lily and her mom went to the park. They saw a big dog and a small cat.",
    "One day a bird sat on a tree. The bird was very happy and sang a song all day long.",
]

Answers = dict[tuple[str, int], list[int]]


def requests(stories: LoadedModel, count: int) -> list[GenerationRequest]:
    rng = random.Random(1)
    heads = [stories.tokenizer.encode(text, bos=True) for text in TEXTS]
    made = []
    for number in range(count):
        head = rng.choice(heads)
        tail = [rng.randrange(3, 512) for _ in range(rng.randrange(1, 20))]
        params = SamplingParams(
            max_tokens=rng.randrange(1, 17),
            temperature=rng.choice([0.0, 0.0, 1.0]),
            seed=number,
            n=rng.choice([1] * 7 + [2, 3]),
        )
        made.append(GenerationRequest(str(number), head[: rng.randrange(len(head))] + tail, params))
    return made


def answers_of(
    subject: Worker, asked: list[GenerationRequest], after_step: Callable[[], object]
) -> Answers:
    """They come in a few at a time, at random."""
    rng = random.Random(2)
    waiting = list(reversed(asked))
    answers: Answers = {}
    while waiting or subject.engine.has_work:
        for _ in range(min(len(waiting), rng.choice([0, 1, 1, 2]))):
            subject.engine.add(waiting.pop())
        collect(subject.engine.step(), answers)
        after_step()
    return answers


def different(answers: Answers, expected: Answers) -> list[tuple[str, int]]:
    assert answers.keys() == expected.keys()
    return [key for key in expected if answers[key] != expected[key]]


@pytest.fixture(scope="module")
def infinite(precise_stories: LoadedModel) -> Answers:
    subject = worker(precise_stories, num_blocks=8192)
    answers = answers_of(subject, requests(precise_stories, 1000), lambda: None)
    assert subject.cache.stats().evicted_blocks == 0
    assert subject.engine.stats.preemptions == 0
    return answers


@pytest.mark.parametrize("host_blocks", [0, 40])
def test_a_small_pool_gives_the_answers_of_an_infinite_one_and_leaks_nothing(
    precise_stories: LoadedModel, infinite: Answers, host_blocks: int
) -> None:
    small = worker(
        precise_stories, NUM_BLOCKS, host_blocks, max_batch_tokens=96, max_sequences=16, max_n=4
    )

    asked = requests(precise_stories, 1000)
    answers = answers_of(small, asked, small.cache.audit)

    assert different(answers, infinite) == []
    stats = small.cache.stats()
    assert small.engine.stats.preemptions > 0
    assert stats.evicted_blocks > 1000
    assert (stats.private, stats.live_sequences, stats.pending_copies) == (0, 0, 0)
    assert stats.free + stats.cached == NUM_BLOCKS
    assert stats.host_free + stats.host_cached == host_blocks


@pytest.mark.parametrize("forgotten", ["copy_blocks", "load"])
def test_control_a_worker_that_forgets_to_copy_blocks_is_found_out(
    precise_stories: LoadedModel, infinite: Answers, forgotten: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests(precise_stories, 200)
    expected = {key: infinite[key] for key in infinite if int(key[0]) < len(asked)}
    small = worker(precise_stories, NUM_BLOCKS, 40, max_batch_tokens=96, max_sequences=16, max_n=4)
    monkeypatch.setattr(small.pool, forgotten, lambda pairs: None)

    answers = answers_of(small, asked, small.cache.audit)

    assert len(different(answers, expected)) > 0.02 * len(expected)
