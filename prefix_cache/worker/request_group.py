"""A request under way, with the sequences it has open."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod

from prefix_cache.errors import PrefixCacheError
from prefix_cache.worker.request import FinishReason, GenerationRequest, RequestOutput, Usage
from prefix_cache.worker.running_sequence import RunningSequence


class RequestGroup(ABC):
    """The live sequences of one request: its answers, or its beams.

    It begins with the prompt, which is computed once and forked.  It is preempted and resumed as
    a whole.  ``dropped`` are sequences that have ended and of which the cache is to be told.
    """

    def __init__(self, request: GenerationRequest) -> None:
        self.request = request
        self.sequences = [RunningSequence(request.prompt_ids)]
        self.dropped: list[RunningSequence] = []
        self.was_opened = False
        self.cached_tokens = 0
        self._first_token_s: float | None = None

    @property
    @abstractmethod
    def seats(self) -> int:
        """The most sequences it can have at once."""

    @property
    def is_open(self) -> bool:
        """Whether the cache knows of any of its sequences."""
        return any(sequence.number is not None for sequence in self.sequences)

    @abstractmethod
    def computable(self, sequence: RunningSequence) -> int:
        """Return how many tokens of one of its sequences may be computed now."""

    @abstractmethod
    def unfinished(self) -> list[int]:
        """Return the indices of the answers that have not ended."""

    def next_to_open(self) -> RunningSequence | None:
        """Return the sequence to acquire next.

        They are acquired one after the other, each when the ones before it are computed: so they
        share in the cache again what they shared before they were preempted.
        """
        for sequence in self.sequences:
            if sequence.number is not None and sequence.remaining > 1:
                return None
            if sequence.number is None and sequence.fork_of is None:
                return sequence
        return None

    def end(
        self, finish_reason: FinishReason, error: PrefixCacheError | None = None
    ) -> list[RequestOutput]:
        """Drop every sequence; return how the answers that had not ended end."""
        if not self.sequences:
            return []
        outputs = [
            RequestOutput(self.request.id, index, finish_reason=finish_reason, error=error)
            for index in self.unfinished()
        ]
        self.dropped += self.sequences
        self.sequences = []
        return outputs

    def first_token_s(self) -> float:
        """Seconds from the arrival to the first token, which is there now if it was not before."""
        if self._first_token_s is None:
            self._first_token_s = time.monotonic() - self.request.arrival
        return self._first_token_s

    def usage(self, completion_tokens: int) -> Usage:
        """Return the tokens of one answer."""
        return Usage(len(self.request.prompt_ids), self.cached_tokens, completion_tokens)
