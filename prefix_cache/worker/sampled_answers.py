"""A request whose n answers are sampled, each on its own."""

from __future__ import annotations

from prefix_cache.worker.answer import Answer
from prefix_cache.worker.request import GenerationRequest, RequestOutput
from prefix_cache.worker.request_group import RequestGroup
from prefix_cache.worker.running_sequence import RunningSequence
from prefix_cache.worker.tokenizer import Tokenizer


class SampledAnswers(RequestGroup):
    """One sequence for each answer, forked from the prompt when that is computed."""

    def __init__(self, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        super().__init__(request)
        after = request.prompt_ids[-1]
        self._not_begun = [
            Answer(request.params, index, tokenizer, after) for index in range(request.params.n)
        ]
        self._answers: dict[RunningSequence, Answer] = {}

    @property
    def seats(self) -> int:
        """One for each answer."""
        return self.request.params.n

    def computable(self, sequence: RunningSequence) -> int:
        """All of it, once it has the slots."""
        return sequence.remaining if sequence.is_held else 0

    def unfinished(self) -> list[int]:
        """Return the indices of the answers that have not ended."""
        return [answer.index for answer in (*self._answers.values(), *self._not_begun)]

    def samplers(self, sequence: RunningSequence) -> list[tuple[RunningSequence, Answer]]:
        """Return the sequences that go on from the logits after ``sequence``, with their answers.

        After the prompt these are all n; after that each is on its own.
        """
        if self._not_begun:
            self.sequences += [sequence.fork() for _ in self._not_begun[1:]]
            self._answers = dict(zip(self.sequences, self._not_begun, strict=True))
            self._not_begun = []
            return list(self._answers.items())
        return [(sequence, self._answers[sequence])]

    def add(self, sequence: RunningSequence, token: int) -> RequestOutput:
        """Go on with a sampled token; what has ended is dropped."""
        answer = self._answers[sequence]
        sequence.tokens.append(token)
        text = answer.add(token)
        usage = None
        if answer.finish_reason is not None:
            self.sequences.remove(sequence)
            self.dropped.append(sequence)
            del self._answers[sequence]
            usage = self.usage(sequence.num_generated)
        return RequestOutput(
            self.request.id,
            answer.index,
            (token,),
            text,
            answer.finish_reason,
            usage,
            self.first_token_s(),
        )
