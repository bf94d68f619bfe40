"""Beam search over the fake model against the definition, and what its beams share."""

from __future__ import annotations

import numpy as np
import pytest

from prefix_cache.worker.sampling import SamplingParams

from .engines import bench, greedy
from .fake_model import EOS, FakeTokenizer, answer, log_probabilities

PROMPT = [(7 * position) % 50 for position in range(50)]

Scored = tuple[float, list[int]]


def beam_search(prompt: list[int], params: SamplingParams) -> list[list[int]]:
    """The definition: every beam is scored anew from all of its tokens."""
    width = params.beam_width
    beams: list[Scored] = [(0.0, [])]
    kept: list[Scored] = []
    for length in range(1, params.max_tokens + 1):
        extended = sorted(
            (
                (total + float(value), [*tokens, token])
                for total, tokens in beams
                for token, value in enumerate(log_probabilities(prompt + tokens))
            ),
            key=lambda scored: -scored[0],
        )
        ends = [scored[1][-1] == EOS and not params.ignore_eos for scored in extended[: 2 * width]]
        kept += [
            (total / length, tokens)
            for (total, tokens), end in zip(extended[:width], ends, strict=False)
            if end
        ]
        beams = [scored for scored, end in zip(extended, ends, strict=False) if not end][:width]
        kept = sorted(kept, key=lambda scored: -scored[0])[:width]
        if length == params.max_tokens:
            kept += [(total / length, tokens) for total, tokens in beams]
        elif len(kept) == width and beams[0][0] / length <= kept[-1][0]:
            break
    return [tokens for _, tokens in sorted(kept, key=lambda scored: -scored[0])[: params.n]]


@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_the_best_beams_are_found(width: int) -> None:
    params = greedy(12, beam_width=width, n=width)
    engine = bench()
    engine.add("beams", PROMPT, params)

    answers = engine.run()

    assert [answers["beams", index] for index in range(width)] == beam_search(PROMPT, params)


@pytest.mark.parametrize("start", range(6))
def test_beams_that_end_early_are_kept_and_scored_by_their_mean(start: int) -> None:
    params = SamplingParams(max_tokens=25, beam_width=4, n=3)
    engine = bench()
    engine.add("beams", PROMPT[start:], params)

    answers = engine.run()

    expected = beam_search(PROMPT[start:], params)
    assert [answers["beams", index] for index in range(3)] == expected


def test_one_beam_is_the_greedy_answer() -> None:
    engine = bench()
    engine.add("beam", PROMPT, greedy(15, beam_width=1))
    assert engine.run()["beam", 0] == answer(PROMPT, greedy(15))


def test_beams_come_whole_with_their_text_and_tokens() -> None:
    engine = bench()
    engine.add("beams", PROMPT, greedy(6, beam_width=3, n=2))
    outputs = [output for _ in range(7) for output in engine.engine.step()]

    assert [(output.index, output.finish_reason) for output in outputs] == [
        (0, "length"),
        (1, "length"),
    ]
    for output in outputs:
        assert output.text == FakeTokenizer().decode(output.token_ids)
        assert output.usage is not None
        assert output.usage.completion_tokens == 6
        assert output.first_token_s is not None


def test_a_beam_ends_before_a_stop_string() -> None:
    best = beam_search(PROMPT, greedy(6, beam_width=3, n=1))[0]
    stop = FakeTokenizer().decode(best[2:4])
    engine = bench()
    engine.add("beams", PROMPT, greedy(6, beam_width=3, n=3, stop=(stop,)))
    outputs = [output for _ in range(7) for output in engine.engine.step()]

    texts = [output.text for output in outputs if output.finish_reason == "stop"]
    assert FakeTokenizer().decode(best[:2]) in texts
    assert not any(stop in output.text for output in outputs)


def test_beams_share_what_they_have_in_common_and_copy_a_tail_before_they_write_to_it() -> None:
    engine = bench()
    engine.add("beams", PROMPT, greedy(40, beam_width=4, n=4))
    saved: list[float] = []
    engine.run(lambda _: saved.append(engine.engine.memory_use().share_saved))

    # Until they write, four tables name the same four blocks.
    assert saved[0] == 1 - 4 / 16
    assert np.mean(saved[1:40]) > 0.4
    assert engine.cache.stats().private == 0


def test_an_aborted_search_answers_nothing_and_frees_its_beams() -> None:
    engine = bench()
    engine.add("beams", PROMPT, greedy(40, beam_width=4, n=2))
    for _ in range(5):
        engine.engine.step()
    engine.engine.abort("beams")
    outputs = engine.engine.step()

    assert [(output.index, output.finish_reason) for output in outputs] == [
        (0, "abort"),
        (1, "abort"),
    ]
    assert engine.cache.stats().live_sequences == 0
