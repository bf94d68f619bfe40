"""One engine, one pool: what is answered, what it costs, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from prefix_cache.client import Acknowledge, Acquire, Append, Commit, Fork, Operation, Release
from prefix_cache.errors import (
    InvalidArgument,
    InvalidTokens,
    InvalidTokenType,
    PromptTooLarge,
    ValueOutOfRange,
)
from prefix_cache.worker.request import GenerationRequest, Usage
from prefix_cache.worker.sampling import SamplingParams

from .engines import WHO, bench, greedy
from .fake_model import EOS, VOCAB_SIZE, FakeTokenizer, answer, log_probabilities

PROMPT = [(7 * position) % 50 for position in range(50)]


def sampled(max_tokens: int, **settings: object) -> SamplingParams:
    return SamplingParams(max_tokens, **{"ignore_eos": True, **settings})  # type: ignore[arg-type]


def test_an_answer_is_what_the_model_says_of_the_whole_prompt() -> None:
    assert bench().answer(PROMPT, greedy(20)) == answer(PROMPT, greedy(20))


def test_a_long_prompt_is_prefilled_in_chunks_of_a_step() -> None:
    engine = bench(max_batch_tokens=16, max_sequences=4, max_n=4)

    assert engine.answer(PROMPT, greedy(2)) == answer(PROMPT, greedy(2))

    computed = [[(part.first, part.count) for part in batch] for batch in engine.model.batches]
    assert computed == [[(0, 16)], [(16, 16)], [(32, 16)], [(48, 2)], [(50, 1)]]


def test_a_prompt_seen_before_is_computed_from_its_first_uncached_token() -> None:
    engine = bench()
    engine.answer(PROMPT, greedy(1))
    engine.model.batches.clear()

    assert engine.answer(PROMPT, greedy(1)) == answer(PROMPT, greedy(1))

    assert [(part.first, part.count) for part in engine.model.batches[0]] == [(48, 2)]
    assert engine.engine.stats.cached_tokens == 48
    assert engine.engine.stats.prefilled_tokens == 50 + 2


def test_an_answer_is_cached_but_for_its_last_token_whose_kv_nobody_wrote() -> None:
    for generated, cached in ((14, 48), (15, 64)):
        engine = bench()
        tokens = PROMPT + engine.answer(PROMPT, greedy(generated))
        assert engine.cache.match(WHO, [*tokens, 0]).num_cached_tokens == cached


def test_prompts_of_another_salt_find_nothing() -> None:
    engine = bench()
    engine.answer(PROMPT, greedy(1))
    engine.engine.add(GenerationRequest("salted", PROMPT, greedy(1), salt="other"))
    engine.run()

    assert engine.engine.stats.cached_tokens == 0


def test_a_batch_decodes_first_and_prefills_with_what_is_left_of_its_tokens() -> None:
    engine = bench(max_batch_tokens=32, max_sequences=4, max_n=4)
    engine.add("first", PROMPT[:20], greedy(5))
    engine.engine.step()
    engine.add("second", PROMPT[10:], greedy(5))
    engine.engine.step()

    assert [(part.first, part.count) for part in engine.model.batches[1]] == [(20, 1), (0, 31)]


def test_answers_do_not_depend_on_batch_mates_that_come_and_go() -> None:
    engine = bench(256, max_batch_tokens=64, max_sequences=16)
    prompts = {str(number): PROMPT[number : number + 11 + number] for number in range(14)}
    waiting = list(prompts)
    answers: dict[str, list[int]] = {name: [] for name in prompts}
    while waiting or engine.engine.has_work:
        if waiting:
            name = waiting.pop(0)
            engine.add(name, prompts[name], greedy(3 + int(name)))
        for output in engine.engine.step():
            answers[output.id] += output.token_ids

    for name, prompt in prompts.items():
        assert answers[name] == answer(prompt, greedy(3 + int(name)))


def test_sampled_answers_follow_their_seed_whoever_is_computed_beside_them() -> None:
    engine = bench()
    for seed in range(4):
        engine.add(str(seed), PROMPT, sampled(10, seed=seed, temperature=1.2))

    answers = engine.run()

    for seed in range(4):
        expected = answer(PROMPT, sampled(10, seed=seed, temperature=1.2))
        assert answers[str(seed), 0] == expected


def test_n_answers_share_the_prompt_and_are_each_their_own() -> None:
    engine = bench()
    params = sampled(10, seed=5, n=4)
    engine.add("four", PROMPT, params)

    answers = engine.run()

    assert answers == {("four", index): answer(PROMPT, params, index) for index in range(4)}
    assert len({tuple(tokens) for tokens in answers.values()}) == 4
    assert engine.engine.stats.prefilled_tokens == 50


def test_n_answers_hold_the_full_blocks_of_the_prompt_once() -> None:
    engine = bench()
    engine.add("four", PROMPT, sampled(10, seed=5, n=4))
    engine.engine.step()
    engine.engine.step()

    # Three full blocks of the prompt, and its tail of two tokens copied for three of the four.
    use = engine.engine.memory_use()
    assert (use.blocks, use.unshared_blocks) == (3 + 4, 4 * 4)


def test_every_step_is_one_message_in_an_order_that_keeps_shared_blocks_right() -> None:
    engine = bench(64, host_blocks=64)
    engine.add("beams", PROMPT, greedy(12, beam_width=3, n=3))
    engine.add("four", PROMPT, sampled(10, n=4))
    ranks: list[type[Operation] | None] = [Acknowledge, Commit, Fork, Release, Append, Acquire]
    steps = 0
    while engine.engine.has_work:
        engine.engine.step()
        steps += 1

    assert len(engine.messages) == steps
    for message in engine.messages:
        released = {part.sequence_id for part in message if isinstance(part, Release)}
        kinds = [
            ranks.index(type(part))
            for part in message
            # The last commit of what ends stands before its release.
            if not (isinstance(part, Commit) and part.sequence_id in released)
        ]
        assert kinds == sorted(kinds)


def test_an_answer_ends_at_the_token_that_ends_answers() -> None:
    seed = next(seed for seed in range(1000) if EOS in answer(PROMPT, ending(seed))[2:8])
    engine = bench()
    engine.add("r", PROMPT, ending(seed))
    outputs = [output for _ in range(12) for output in engine.engine.step()]

    assert [token for output in outputs for token in output.token_ids][-1] == EOS
    assert outputs[-1].finish_reason == "stop"
    assert "".join(output.text for output in outputs) == FakeTokenizer().decode(
        answer(PROMPT, ending(seed))[:-1]
    )


def ending(seed: int) -> SamplingParams:
    return SamplingParams(max_tokens=12, seed=seed)


def test_an_answer_ends_before_a_stop_string_and_text_that_may_become_one_is_held_back() -> None:
    tokens = answer(PROMPT, greedy(8))
    text = FakeTokenizer().decode(tokens)
    engine = bench()
    engine.add("r", PROMPT, greedy(8, stop=(text[3:6],)))
    texts, reasons = [], []
    while engine.engine.has_work:
        for output in engine.engine.step():
            texts.append(output.text)
            reasons.append(output.finish_reason)

    assert "".join(texts) == text[:3]
    assert texts[3:] == ["", "", ""]
    assert reasons == [None] * 5 + ["stop"]


def test_the_last_output_counts_the_tokens() -> None:
    engine = bench()
    engine.answer(PROMPT, greedy(1))
    engine.add("r", PROMPT, greedy(3))
    outputs = [output for _ in range(4) for output in engine.engine.step()]

    assert [output.finish_reason for output in outputs] == [None, None, "length"]
    assert outputs[-1].usage == Usage(prompt_tokens=50, cached_tokens=48, completion_tokens=3)
    assert len({output.first_token_s for output in outputs}) == 1


def test_an_aborted_request_gives_back_its_blocks_wherever_it_is() -> None:
    engine = bench(max_batch_tokens=16, max_sequences=6, max_n=4)
    engine.add("prefilling", PROMPT, greedy(5))
    engine.add("waiting", PROMPT, greedy(5))
    engine.engine.step()
    engine.engine.abort("prefilling")
    engine.engine.abort("waiting")
    engine.engine.abort("waiting")
    engine.engine.abort("unheard of")
    engine.add("forked", PROMPT, sampled(5, n=4))
    outputs = [output for _ in range(5) for output in engine.engine.step()]
    engine.engine.abort("forked")
    outputs += engine.engine.step()

    ended = [(output.id, output.index) for output in outputs if output.finish_reason == "abort"]
    assert ended[:2] == [("prefilling", 0), ("waiting", 0)]
    assert ended[2:] == [("forked", index) for index in range(4)]
    assert not engine.engine.has_work
    assert engine.cache.stats().live_sequences == engine.cache.stats().private == 0


def test_copies_are_acknowledged_when_there_is_nothing_else_to_do() -> None:
    engine = bench(4, host_blocks=8)
    engine.answer(PROMPT, greedy(1))
    engine.answer(list(reversed(PROMPT)), greedy(1))

    assert engine.cache.stats().offloaded_blocks == 3
    assert engine.cache.stats().pending_copies == 0


@pytest.mark.parametrize(
    ("prompt", "params", "error", "message"),
    [
        ([], greedy(1), InvalidTokens, "the prompt is empty, expected at least one token"),
        ([1, 64], greedy(1), InvalidTokens, f"token 1 is 64, expected 0 to {VOCAB_SIZE - 1}"),
        ([1, -1], greedy(1), InvalidTokens, "token 1 is -1, expected 0 to 4294967295"),
        ([1, 1.5], greedy(1), InvalidTokenType, "token 1 is 1.5 (float), expected an integer"),
        (
            [1] * 200,
            greedy(1),
            PromptTooLarge,
            "the prompt has 200 tokens, at most 128 fit",
        ),
        (
            [1] * 100,
            greedy(30),
            InvalidArgument,
            "max_tokens is 30, at most 29 fit after a prompt of 100 tokens",
        ),
        # Two blocks of the prompt are shared, three are each answer's own.
        (
            [1] * 40,
            greedy(42, n=2),
            InvalidArgument,
            "max_tokens is 42, at most 41 fit after a prompt of 40 tokens",
        ),
        ([1], greedy(1, n=9), InvalidArgument, "n is 9, expected at most 4"),
        (
            [1],
            greedy(1, beam_width=5),
            InvalidArgument,
            "beam_width is 5, expected at most 4",
        ),
    ],
)
def test_what_never_fits_is_refused_with_the_number_that_does(
    prompt: list[Any], params: SamplingParams, error: type[Exception], message: str
) -> None:
    engine = bench(8, max_n=4)
    with pytest.raises(error) as caught:
        engine.add("r", prompt, params)
    assert str(caught.value) == message
    assert not engine.engine.has_work


def test_the_longest_that_is_let_through_can_be_answered() -> None:
    engine = bench(8, max_n=4)
    assert len(engine.answer([1] * 100, greedy(29))) == 29
    assert len(engine.answer([1] * 128, greedy(1))) == 1
    engine.add("r", [1] * 40, greedy(41, n=2))
    assert [len(tokens) for tokens in engine.run().values()] == [41, 41]


def test_a_request_that_can_not_be_computed_fails_and_nobody_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = bench()
    forward = engine.model.forward

    def picky(token_ids: Tensor, *rest: Any) -> Tensor:
        if 62 in token_ids:
            raise ValueOutOfRange("a key is 600, the format ends at 448")
        return forward(token_ids, *rest)

    monkeypatch.setattr(engine.model, "forward", picky)
    engine.add("before", PROMPT, sampled(4, temperature=0.0))
    engine.add("poison", [62, *PROMPT], sampled(4, n=2))
    engine.add("behind", PROMPT[1:], sampled(4, temperature=0.0))
    outputs = [output for _ in range(5) for output in engine.engine.step()]

    failed = [output for output in outputs if output.finish_reason == "error"]
    assert [(output.id, output.index, str(output.error)) for output in failed] == [
        ("poison", 0, "a key is 600, the format ends at 448"),
        ("poison", 1, "a key is 600, the format ends at 448"),
    ]
    for name, prompt in [("before", PROMPT), ("behind", PROMPT[1:])]:
        tokens = [token for output in outputs if output.id == name for token in output.token_ids]
        assert tokens == answer(prompt, greedy(4))
    assert engine.cache.stats().live_sequences == 0


def test_two_requests_of_one_id_are_told_apart_by_refusing_the_second() -> None:
    engine = bench()
    engine.add("r", PROMPT, greedy(1))
    with pytest.raises(InvalidArgument, match="request 'r' is under way already"):
        engine.add("r", PROMPT, greedy(1))
    engine.run()
    engine.add("r", PROMPT, greedy(1))


def test_a_longer_context_than_the_model_was_trained_on_is_warned_of() -> None:
    with pytest.warns(UserWarning, match="max_model_len is 600, the model was trained on 512"):
        engine = bench(max_position=512, max_model_len=600)
    assert engine.engine.limits.max_model_len == 600


def test_the_fake_model_answers_otherwise_when_a_token_of_the_past_is_another() -> None:
    # What the tests of this folder stand on.
    other = [*PROMPT[:3], PROMPT[3] + 1, *PROMPT[4:]]
    assert answer(other, greedy(5)) != answer(PROMPT, greedy(5))
    assert log_probabilities(other).tolist() != log_probabilities(PROMPT).tolist()
