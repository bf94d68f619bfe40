"""A cache, in whatever state and wherever it is, changes no logit and no answer.

Each way to run one request is compared with a run without a cache: the logits at every position
to 1e-4, and the text as far as it can be told from the logits, that is up to a position at which
the two best are less than 1e-4 apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from prefix_cache.client import NodeClient
from prefix_cache.worker.loading import LoadedModel
from prefix_cache.worker.node_sessions import node_sessions
from prefix_cache.worker.request import GenerationRequest

from ..node.nodes import node_process
from .workers import WHO, Logits, Worker, collect, gap, greedy, worker

TOLERANCE = 1e-4
NEW_TOKENS = 120
OPENINGS = [
    "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. "
    "One day she saw a big red ball in the grass and she wanted to play with it.",
    "Tom and Sue went to the zoo with their mom and dad. They saw a big lion and a small monkey. "
    "The monkey was sad because it was all alone, and Sue wanted to help it.",
    "The dog was sad because he had lost his red ball. He looked under the bed and in the box. "
    "Then a cat came and said that she had seen the ball behind the old tree.",
]


@dataclass
class Compared:
    """All positions that were compared in this module, and how many could not be told apart."""

    positions: int = 0
    ties: int = 0


@dataclass
class Reference:
    prompt: list[int]
    answer: list[int]
    logits: Logits = field(repr=False)


@pytest.fixture(scope="module")
def references(stories: LoadedModel) -> list[Reference]:
    """What is answered without a cache: every request has its own salt, and nobody's before."""
    found = []
    for text in OPENINGS:
        alone = worker(stories)
        prompt = stories.tokenizer.encode(text, bos=True)
        found.append(
            Reference(prompt, alone.answer(prompt, greedy(NEW_TOKENS)), alone.model.logits)
        )
        assert alone.engine.stats.cached_tokens == 0
    return found


@pytest.fixture(scope="module")
def compared() -> Iterator[Compared]:
    counted = Compared()
    yield counted
    assert counted.ties < 0.001 * counted.positions


def check(
    reference: Reference, answers: list[list[int]], logits: Logits, compared: Compared
) -> None:
    """Answers and logits are those of the reference, until two tokens can not be told apart."""
    begin = len(reference.prompt)
    lengths = sorted(length for length in logits if length >= begin)
    assert lengths
    for length in lengths:
        [expected] = reference.logits[length]
        for found in logits[length]:
            compared.positions += 1
            torch.testing.assert_close(found, expected, atol=TOLERANCE, rtol=0)
        expected_token = reference.answer[length - begin]
        tokens = {answer[length - begin] for answer in answers if len(answer) > length - begin}
        if tokens - {expected_token}:
            assert gap(expected) < TOLERANCE
            compared.ties += 1
            return


def run_one(subject: Worker, reference: Reference, **settings: int) -> list[list[int]]:
    """Answer the prompt of the reference, greedily."""
    subject.model.logits.clear()
    params = greedy(NEW_TOKENS, **settings)
    subject.engine.add(GenerationRequest("subject", reference.prompt, params))
    answers = subject.run(subject.cache.audit)
    return list(answers.values())


def flood(subject: Worker, stories: LoadedModel, salt: str) -> None:
    """Fill the pool with something else."""
    prompt = stories.tokenizer.encode("A cat sat on the mat. " * 30, bos=True)
    room = subject.engine.limits.room(1)
    subject.answer(prompt[: room - 1], greedy(1), salt)


def test_a_cold_and_a_warm_cache(
    stories: LoadedModel, references: list[Reference], compared: Compared
) -> None:
    shared = worker(stories)
    for reference in references:
        check(reference, run_one(shared, reference), shared.model.logits, compared)
    assert shared.engine.stats.cached_tokens == 0
    for reference in references:
        check(reference, run_one(shared, reference), shared.model.logits, compared)
    assert shared.engine.stats.cached_tokens == sum(
        (len(reference.prompt) - 1) // 16 * 16 for reference in references
    )


def test_a_conversation_that_goes_on_from_its_cached_answer(
    stories: LoadedModel, references: list[Reference], compared: Compared
) -> None:
    shared = worker(stories)
    for reference in references:
        run_one(shared, reference)
        shared.model.logits.clear()
        said = 70
        prompt = reference.prompt + reference.answer[:said]
        tail = shared.answer(prompt, greedy(NEW_TOKENS - said))
        check(reference, [reference.answer[:said] + tail], shared.model.logits, compared)
        assert shared.engine.stats.cached_tokens >= len(prompt) - 17


def test_prefill_in_small_chunks(
    stories: LoadedModel, references: list[Reference], compared: Compared
) -> None:
    chunked = worker(stories, max_batch_tokens=8, max_sequences=4, max_n=4)
    for reference in references:
        check(reference, run_one(chunked, reference), chunked.model.logits, compared)


def test_eviction_and_prefill_again(
    stories: LoadedModel, references: list[Reference], compared: Compared
) -> None:
    small = worker(stories, num_blocks=16)
    for number, reference in enumerate(references):
        run_one(small, reference)
        flood(small, stories, f"flood {number}")
        before = small.engine.stats.cached_tokens
        check(reference, run_one(small, reference), small.model.logits, compared)
        assert small.engine.stats.cached_tokens == before


def test_eviction_to_the_host_and_back(
    stories: LoadedModel, references: list[Reference], compared: Compared
) -> None:
    small = worker(stories, num_blocks=16, host_blocks=128)
    for number, reference in enumerate(references):
        run_one(small, reference)
        flood(small, stories, f"flood {number}")
        before = small.engine.stats.loaded_tokens
        check(reference, run_one(small, reference), small.model.logits, compared)
        loaded = small.engine.stats.loaded_tokens - before
        assert loaded == (len(reference.prompt) - 1) // 16 * 16


@pytest.mark.parametrize("preemption", ["swap", "recompute"])
def test_preemption_in_the_middle_of_an_answer(
    stories: LoadedModel, references: list[Reference], compared: Compared, preemption: str
) -> None:
    for reference in references:
        small = worker(stories, num_blocks=13, host_blocks=64, preemption=preemption)
        begin = len(reference.prompt)
        for number in range(4):
            older = stories.tokenizer.encode("I see a fox", bos=True)
            params = greedy(begin - len(older) - 1)
            small.engine.add(GenerationRequest(f"older {number}", older, params, str(number)))
        small.model.from_length = begin
        check(reference, run_one(small, reference)[4:], small.model.logits, compared)
        stats = small.engine.stats
        assert stats.preemptions > 0
        assert (stats.resumed_by_swap if preemption == "swap" else stats.resumed_by_recompute) > 0


def test_answers_forked_from_one_prompt(
    stories: LoadedModel, references: list[Reference], compared: Compared
) -> None:
    shared = worker(stories)
    for reference in references:
        answers = run_one(shared, reference, n=3)
        assert len(answers) == 3
        check(reference, answers, shared.model.logits, compared)


def test_batch_mates_that_come_and_go(
    stories: LoadedModel, references: list[Reference], compared: Compared
) -> None:
    for reference in references:
        shared = worker(stories, max_batch_tokens=64, max_sequences=16)
        begin = len(reference.prompt)
        shared.model.from_length = begin
        answers: dict[tuple[str, int], list[int]] = {}
        steps = 0
        while steps == 0 or shared.engine.has_work:
            if steps < 100:
                mate = reference.prompt[steps % 9 : steps % 9 + 5 + steps % 7]
                params = greedy(1 + steps % (begin - len(mate) - 1) % 12)
                shared.engine.add(GenerationRequest(f"mate {steps}", mate, params))
            if steps == 3:
                params = greedy(NEW_TOKENS)
                shared.engine.add(GenerationRequest("subject", reference.prompt, params))
            collect(shared.engine.step(), answers)
            steps += 1
        check(reference, [answers["subject", 0]], shared.model.logits, compared)


def test_a_node_as_a_process_of_its_own(
    stories: LoadedModel, references: list[Reference], compared: Compared, tmp_path: Path
) -> None:
    address = f"unix://{tmp_path}/node.sock"
    with node_process(listen=[address], num_blocks=16, host_blocks=32), NodeClient(address) as node:
        remote = worker(stories, 16, 32, open_session=node_sessions(node, WHO, 16))
        for reference in [*references, *references]:
            check(reference, run_one(remote, reference), remote.model.logits, compared)
        assert remote.engine.stats.loaded_tokens > 0
        remote.engine.close()
        stats = node.stats()
        assert (stats.private, stats.live_sequences, stats.pending_copies) == (0, 0, 0)


def test_control_a_worker_that_reads_before_it_loads_is_found_out(
    stories: LoadedModel, references: list[Reference], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = worker(stories, num_blocks=16, host_blocks=128)
    run_one(small, references[0])
    flood(small, stories, "flood")
    monkeypatch.setattr(small.pool, "load", lambda pairs: None)
    answers = run_one(small, references[0])

    with pytest.raises(AssertionError):
        check(references[0], answers, small.model.logits, Compared())
