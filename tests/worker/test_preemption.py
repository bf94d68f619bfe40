"""When blocks run out the newest request gives way, and goes on later as if nothing had been."""

from __future__ import annotations

import random

import pytest

from prefix_cache.client import Acquire
from prefix_cache.worker.request import RequestOutput, Usage
from prefix_cache.worker.resume_costs import ResumeCosts
from prefix_cache.worker.sampling import SamplingParams

from .engines import WHO, Bench, bench, greedy
from .fake_model import answer


def prompt(number: int, length: int) -> list[int]:
    return [(number * 17 + position) % 60 for position in range(length)]


def three_that_do_not_fit(engine: Bench, params: SamplingParams) -> None:
    """Each grows from 3 to 6 blocks; the pool has 12."""
    for number in range(3):
        engine.add(str(number), prompt(number, 40), params)


@pytest.mark.parametrize("host_blocks", [0, 3, 32])
@pytest.mark.parametrize("preemption", ["auto", "recompute", "swap"])
def test_a_preempted_request_gives_the_answer_it_would_have_given(
    host_blocks: int, preemption: str
) -> None:
    engine = bench(12, host_blocks, preemption=preemption)
    three_that_do_not_fit(engine, greedy(50))

    assert engine.run() == {
        (str(number), 0): answer(prompt(number, 40), greedy(50)) for number in range(3)
    }
    assert engine.engine.stats.preemptions > 0


def test_the_newest_is_preempted_and_the_oldest_never() -> None:
    engine = bench(12)
    three_that_do_not_fit(engine, greedy(50))
    engine.run()

    resumed = [
        list(part.tokens[:40])
        for message in engine.messages
        for part in message
        if isinstance(part, Acquire) and part.resumed
    ]
    assert resumed == [prompt(2, 40)]


def test_swap_loads_from_the_host_and_computes_at_most_a_block_again() -> None:
    engine = bench(12, 32, preemption="swap")
    three_that_do_not_fit(engine, greedy(50))
    engine.run()

    stats = engine.engine.stats
    assert stats.resumed_by_swap == stats.preemptions == 1
    assert stats.loaded_tokens > 0
    assert stats.recomputed_tokens < 16


def test_recompute_leaves_the_host_alone() -> None:
    engine = bench(12, 32, preemption="recompute")
    three_that_do_not_fit(engine, greedy(50))
    engine.run()

    stats = engine.engine.stats
    assert stats.resumed_by_recompute == stats.preemptions == 1
    assert stats.loaded_tokens == 0
    assert stats.recomputed_tokens >= 16


def test_new_prompts_are_loaded_from_the_host_however_preempted_ones_are_resumed() -> None:
    engine = bench(4, 16, preemption="recompute")
    engine.answer(prompt(0, 50), greedy(1))
    engine.answer(prompt(1, 50), greedy(1))

    assert engine.answer(prompt(0, 50), greedy(5)) == answer(prompt(0, 50), greedy(5))
    assert engine.engine.stats.loaded_tokens == 48
    assert engine.engine.stats.cached_tokens == 48


def test_n_answers_are_preempted_and_resumed_as_a_whole_and_share_their_prompt_again() -> None:
    params = SamplingParams(max_tokens=40, seed=1, n=3, ignore_eos=True)
    engine = bench(16)
    engine.add("old", prompt(0, 60), greedy(60))
    engine.add("three", prompt(1, 64), params)
    live: set[int] = set()
    answers = engine.run(lambda _: live.add(engine.cache.stats().live_sequences))

    assert answers["old", 0] == answer(prompt(0, 60), greedy(60))
    assert [answers["three", index] for index in range(3)] == [
        answer(prompt(1, 64), params, index) for index in range(3)
    ]
    assert engine.engine.stats.preemptions == 1
    assert engine.engine.stats.resumed_by_recompute == 3
    # 4 + 3 * 3 blocks are the most they need: they were resumed although 3 * 7 are not there.
    assert {1, 4} <= live


def test_beams_are_resumed_in_step_with_each_other() -> None:
    params = greedy(40, beam_width=3, n=3)
    alone = bench()
    alone.add("beams", prompt(1, 64), params)
    engine = bench(13)
    engine.add("old", prompt(0, 100), greedy(60))
    engine.add("beams", prompt(1, 64), params)

    answers = engine.run()

    assert engine.engine.stats.preemptions > 0
    assert {key: answers[key] for key in answers if key[0] == "beams"} == alone.run()


def test_two_that_share_everything_and_fill_the_pool_both_come_to_their_end() -> None:
    # The second computes what the first has cached meanwhile, and holds it twice.
    engine = bench(7)
    for name in "ab":
        engine.add(name, prompt(0, 50), greedy(60))

    expected = answer(prompt(0, 50), greedy(60))
    assert engine.run() == {("a", 0): expected, ("b", 0): expected}


@pytest.mark.parametrize(("seed", "block_size"), [(0, 16), (1, 16), (2, 16), (3, 1), (4, 5)])
def test_random_requests_on_a_small_pool_leak_nothing(seed: int, block_size: int) -> None:
    rng = random.Random(seed)
    num_blocks, host_blocks = 256 // block_size, rng.choice([0, 160, 640]) // block_size
    engine = bench(
        num_blocks,
        host_blocks,
        block_size=block_size,
        max_n=4,
        max_sequences=12,
        max_batch_tokens=48,
    )
    heads = [prompt(number, rng.randrange(10, 90)) for number in range(3)]
    expected: dict[tuple[str, int], list[int]] = {}
    answers: dict[tuple[str, int], list[int]] = {}
    while len(expected) < 60 or engine.engine.has_work:
        if len(expected) < 60 and rng.random() < 0.4:
            ids = rng.choice(heads)[: rng.randrange(90)] + prompt(rng.randrange(99), 9)
            params = SamplingParams(
                max_tokens=rng.randrange(1, 30),
                temperature=rng.choice([0.0, 1.0]),
                seed=seed,
                n=rng.choice([1, 1, 1, 2, 4]),
            )
            name = str(len(expected))
            engine.add(name, ids, params)
            for index in range(params.n):
                expected[name, index] = answer(ids, params, index)
        for output in engine.engine.step():
            answers.setdefault((output.id, output.index), []).extend(output.token_ids)

    stats = engine.cache.stats()
    assert answers == expected
    assert engine.engine.stats.preemptions > 0
    assert (stats.private, stats.pending_copies, stats.live_sequences) == (0, 0, 0)
    assert stats.free + stats.cached == num_blocks
    assert stats.host_free + stats.host_cached == host_blocks


def test_what_costs_less_is_chosen_once_both_are_known() -> None:
    costs = ResumeCosts("auto", block_size=16)
    assert costs.should_load()  # to find out
    costs.prefilled(100, 1.0)  # 0.16 s a block
    assert costs.should_load()
    costs.loaded(10, 2.0)  # 0.2 s a block
    assert not costs.should_load()
    for _ in range(10):
        costs.prefilled(100, 2.0)
    assert costs.should_load()


def test_the_policy_is_kept_whatever_it_costs() -> None:
    swap, recompute = ResumeCosts("swap", 16), ResumeCosts("recompute", 16)
    for costs in (swap, recompute):
        costs.prefilled(1, 1.0)
        costs.loaded(1, 100.0 if costs is swap else 0.0)
    assert swap.should_load()
    assert not recompute.should_load()


def test_what_the_host_has_lost_is_computed_and_cached_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = bench(4, 16)
    engine.answer(prompt(0, 50), greedy(1))
    engine.answer(prompt(1, 50), greedy(1))
    scribble_over_the_host(engine)

    outputs: list[RequestOutput] = []
    engine.add("lost", prompt(0, 50), greedy(5))
    assert engine.run(outputs.extend) == {("lost", 0): answer(prompt(0, 50), greedy(5))}
    assert outputs[-1].usage == Usage(prompt_tokens=50, cached_tokens=0, completion_tokens=5)
    stats = engine.engine.stats
    assert (stats.prefilled_tokens, stats.cached_tokens, stats.loaded_tokens) == (150, 0, 0)
    assert "3 blocks are computed again" in caplog.text
    assert engine.cache.match(WHO, prompt(0, 50)).num_cached_tokens == 48
    assert engine.cache.stats().pending_copies == 0
    assert engine.answer(prompt(0, 50), greedy(5)) == answer(prompt(0, 50), greedy(5))


def scribble_over_the_host(engine: Bench) -> None:
    engine.pool._host.data.fill_(7.0)
