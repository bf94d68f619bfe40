"""A chat of ten turns computes what is new in each, and that shows in the time to a first token.

The first prompt has 1,200 tokens.  Each answer of 500 tokens is handed on as the ids that it came
as, with 200 tokens of the next question.
"""

from __future__ import annotations

import pytest

from prefix_cache.worker.loading import LoadedModel
from prefix_cache.worker.request import GenerationRequest

from .workers import Worker, greedy, worker

TURNS = 10


def first_token_s(subject: Worker, prompt: list[int], salt: str) -> float:
    """Seconds to the first token of a prompt."""
    subject.engine.add(GenerationRequest("timed", prompt, greedy(1), salt))
    times = []
    while subject.engine.has_work:
        times += [output.first_token_s for output in subject.engine.step()]
    [seconds] = times
    assert seconds is not None
    return seconds


def test_ten_turns_prefill_3084_tokens_instead_of_43500(stories: LoadedModel) -> None:
    with pytest.warns(UserWarning, match="trained on 512"):
        subject = worker(stories, num_blocks=1040, max_model_len=8192)
    text = stories.tokenizer.encode("The sun was up and Ben ran to the big tree. " * 200, bos=True)
    questions = iter(text[1200 + 200 * turn : 1400 + 200 * turn] for turn in range(TURNS))
    prompt = text[:1200]
    stats = subject.engine.stats
    for turn in range(TURNS):
        if turn == TURNS - 1:
            # In turn, so that both are measured under the same load.
            uncached_s = first_token_s(subject, prompt, "nobody's before")
            cached_s = first_token_s(subject, prompt, "")
            break
        prompt = prompt + subject.answer(prompt, greedy(500)) + next(questions)

    uncached = len(prompt)
    assert uncached == 7_500
    assert stats.prompt_tokens - uncached == 43_500
    assert stats.prefilled_tokens - uncached == 3_084
    assert cached_s <= 0.2 * uncached_s
