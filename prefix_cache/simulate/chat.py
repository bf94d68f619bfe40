"""Chat: every turn sends the history of its conversation again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prefix_cache.index.tokens import TOKEN_BYTES
from prefix_cache.simulate.lengths import Lengths
from prefix_cache.simulate.request import Request
from prefix_cache.simulate.workload import at_rate, token_ids

MEAN_TURNS = 8
"""So that most prompts are as long as they may be, which the paper says of its own."""
_OPEN_CONVERSATIONS = 50


@dataclass(frozen=True, kw_only=True)
class Chat:
    """Turns of conversations that are open at the same time, by Poisson arrivals.

    Questions and answers have such ``lengths``; a prompt is the last ``max_prompt`` tokens of
    history and question.  After a turn a conversation ends with the chance 1 / ``MEAN_TURNS``,
    and a new one takes its place.
    """

    lengths: Lengths
    num_requests: int
    seed: int = 0
    max_prompt: int = 1_024
    max_answer: int = 1_024

    def at_rate(self, requests_per_s: float) -> list[Request]:
        """Return the turns, as ``Load`` says."""
        return at_rate(self._each_second, requests_per_s)

    @cached_property
    def _each_second(self) -> list[Request]:
        random = np.random.default_rng(self.seed)
        arrivals = random.exponential(size=self.num_requests).cumsum()
        speakers = random.integers(_OPEN_CONVERSATIONS, size=self.num_requests)
        ends = random.random(self.num_requests) < 1 / MEAN_TURNS
        histories = [b""] * _OPEN_CONVERSATIONS
        turns = []
        for arrival, speaker, is_last, (question, answer) in zip(
            arrivals.tolist(),
            speakers.tolist(),
            ends.tolist(),
            self.lengths.draw(self.num_requests, random),
            strict=True,
        ):
            prompt = histories[speaker] + token_ids(question, random)
            reply = token_ids(min(answer, self.max_answer), random)
            turns.append(Request(arrival, prompt[-self.max_prompt * TOKEN_BYTES :], reply))
            histories[speaker] = b"" if is_last else prompt + reply
        return turns
