"""What came of serving a load."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from prefix_cache.simulate.allocators import Usage
from prefix_cache.simulate.running import Running

PARTS = ("tokens", "reserved", "internal", "external")


@dataclass(frozen=True, slots=True)
class Answered:
    """When a request was answered, and its seconds: to the first token, per token of the answer."""

    at: float
    first_token_s: float
    normalised_s: float


@dataclass(slots=True)
class Outcome:
    """Means over time count from when a quarter of all requests is answered until all have come,
    none waits and half are answered: before that memory fills, and then it empties.  This window
    was chosen knowing the paper's results.

    ``slot_seconds`` has KV memory in use by ``PARTS``, times the seconds it was: what sequences
    were given, what placement adds to that, and while a request waits for memory all the rest.
    """

    answered: list[Answered] = field(default_factory=list)
    slot_seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    preemptions: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    measured_s: float = 0.0
    generated_tokens: float = 0.0
    request_seconds: float = 0.0
    given_seconds: float = 0.0
    unshared_seconds: float = 0.0

    @property
    def shares(self) -> dict[str, float]:
        """Shares of KV memory in use by ``PARTS``; they add up to 1."""
        total = sum(self.slot_seconds.values())
        return {part: seconds / total for part, seconds in self.slot_seconds.items()}

    @property
    def requests_batched(self) -> float:
        """Mean number of requests that run."""
        return self.request_seconds / self.measured_s

    @property
    def saved_by_sharing(self) -> float:
        """Share of the memory that sequences would be given, did they not share, that is saved."""
        return 1 - self.given_seconds / self.unshared_seconds

    @property
    def hit_rate(self) -> float:
        """Share of the tokens of prompts that were cached."""
        return self.cached_tokens / self.prompt_tokens

    @property
    def first_token_s(self) -> float:
        """Mean over requests of their seconds to the first token."""
        return float(np.mean([one.first_token_s for one in self.answered]))

    @property
    def normalised_latency_s(self) -> float:
        """Mean over requests of their seconds per token of the answer."""
        return float(np.mean([one.normalised_s for one in self.answered]))

    @property
    def normalised_latency_p99_s(self) -> float:
        """The same that 99 % of requests stay below."""
        return float(np.quantile([one.normalised_s for one in self.answered], 0.99))

    @property
    def requests_per_s(self) -> float:
        """Mean over time: tokens generated in a second, in answers of mean length."""
        answers = self.generated_tokens / self.answer_tokens * len(self.answered)
        return answers / self.measured_s

    def finish(self, running: Running, at: float) -> None:
        """Count a request that is answered."""
        request = running.request
        assert running.first_token_s is not None
        self.answer_tokens += request.answer_tokens
        self.answered.append(
            Answered(
                at,
                running.first_token_s - request.arrival_s,
                (at - request.arrival_s) / request.answer_tokens,
            )
        )

    def measure(
        self, usage: Usage, seconds: float, num_running: int, generated: float, is_short: bool
    ) -> None:
        """Count seconds of such a use of memory; ``is_short``: a request waits for some.

        ``generated`` tokens came of them, those of one sequence of each request.
        """
        self.slot_seconds["tokens"] += usage.tokens * seconds
        self.slot_seconds["reserved"] += usage.reserved * seconds
        self.slot_seconds["internal"] += usage.internal * seconds
        self.slot_seconds["external"] += (
            usage.rounding + (usage.free if is_short else 0)
        ) * seconds
        self.measured_s += seconds
        self.generated_tokens += generated
        self.request_seconds += num_running * seconds
        given = usage.tokens + usage.reserved + usage.internal + usage.rounding
        self.given_seconds += given * seconds
        self.unshared_seconds += usage.unshared * seconds
