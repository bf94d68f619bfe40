"""A request that is answered by beam search."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

from torch import Tensor

from prefix_cache.worker.request import FinishReason, GenerationRequest, RequestOutput
from prefix_cache.worker.request_group import RequestGroup
from prefix_cache.worker.running_sequence import RunningSequence
from prefix_cache.worker.stop_strings import StopStrings
from prefix_cache.worker.stream_decoder import StreamDecoder
from prefix_cache.worker.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    """An answer that has ended; ``score`` is the mean log probability of its tokens."""

    token_ids: tuple[int, ...]
    text: str
    score: float
    finish_reason: FinishReason


class BeamSearch(RequestGroup):
    """The ``beam_width`` likeliest continuations, all of the same length, a token at a time.

    A hypothesis that ends among the best of a step is kept aside.  The search is over when the
    best live one is no better, by its mean log probability, than the worst of ``beam_width`` kept.
    """

    def __init__(self, request: GenerationRequest, tokenizer: Tokenizer) -> None:
        super().__init__(request)
        self._tokenizer = tokenizer
        self._eos_ids = frozenset() if request.params.ignore_eos else tokenizer.eos_ids
        self._sums = [0.0]  # of the log probabilities, for each of `sequences`
        self._kept: list[_Hypothesis] = []

    @property
    def seats(self) -> int:
        """One for each beam."""
        return self.request.params.beam_width

    def computable(self, sequence: RunningSequence) -> int:
        """The last token is computed for all beams in the same step."""
        if not sequence.is_held:
            return 0
        together = all(beam.is_held and beam.remaining == 1 for beam in self.sequences)
        return sequence.remaining - (len(self.sequences) > 1 and not together)

    def unfinished(self) -> list[int]:
        """All answers end together."""
        return list(range(self.request.params.n))

    def advance(self, logits: Tensor) -> list[RequestOutput]:
        """Go on from the logits [beams, V] after each of ``sequences``; the answers at the end."""
        self.first_token_s()
        beams = self._extend(logits)
        length = self.sequences[0].num_generated + 1
        if length == self.request.params.max_tokens:
            for parent, token, total in beams:
                self._keep([*parent.generated, token], total, "length")
            beams = []
        elif len(self._kept) == self.seats and beams:
            best = max(total for _, _, total in beams)
            if best / length <= self._kept[-1].score:
                beams = []
        self._replace(beams)
        return [] if beams else self._outputs()

    def _extend(self, logits: Tensor) -> list[tuple[RunningSequence, int, float]]:
        """Return the best beams as (what it extends, token, sum); keep those that ended aside."""
        sums = logits.new_tensor(self._sums).double()
        totals = logits.double().log_softmax(dim=-1) + sums[:, None]
        # What ends takes no beam's place: of twice as many, enough go on.
        best = totals.flatten().topk(min(2 * self.seats, totals.numel()))
        beams: list[tuple[RunningSequence, int, float]] = []
        for rank, (total, at) in enumerate(
            zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ):
            row, token = divmod(at, logits.shape[1])
            parent = self.sequences[row]
            tokens = [*parent.generated, token]
            if self._ends(tokens):
                if rank < self.seats:
                    self._keep(tokens, total, "stop")
            elif len(beams) < self.seats:
                beams.append((parent, token, total))
        return beams

    def _replace(self, beams: list[tuple[RunningSequence, int, float]]) -> None:
        """The first beam that extends a sequence goes on in it, further ones in forks of it."""
        replaced = self.sequences
        self.sequences, self._sums = [], []
        for parent, _, total in beams:
            child = parent if parent not in self.sequences else parent.fork()
            self.sequences.append(child)
            self._sums.append(total)
        for child, (_, token, _) in zip(self.sequences, beams, strict=True):
            child.tokens.append(token)
        self.dropped += [parent for parent in replaced if parent not in self.sequences]

    def _ends(self, tokens: list[int]) -> bool:
        if tokens[-1] in self._eos_ids:
            return True
        return bool(self.request.params.stop) and self._text(tokens)[1]

    def _keep(self, tokens: list[int], total: float, reason: FinishReason) -> None:
        ended = tokens[:-1] if tokens[-1] in self._eos_ids else tokens
        hypothesis = _Hypothesis(tuple(tokens), self._text(ended)[0], total / len(tokens), reason)
        self._kept.append(hypothesis)
        self._kept.sort(key=attrgetter("score"), reverse=True)
        del self._kept[self.seats :]

    def _text(self, tokens: list[int]) -> tuple[str, bool]:
        """Text up to the first stop string, and whether there was one."""
        decoder = StreamDecoder(self._tokenizer, self.request.prompt_ids[-1])
        stop = StopStrings(self.request.params.stop)
        text = "".join(map(decoder.add, tokens)) + decoder.finish()
        return stop.add(text) + stop.finish(), stop.matched is not None

    def _outputs(self) -> list[RequestOutput]:
        return [
            RequestOutput(
                self.request.id,
                index,
                best.token_ids,
                best.text,
                best.finish_reason,
                self.usage(len(best.token_ids)),
                self.first_token_s(),
            )
            for index, best in enumerate(self._kept[: self.request.params.n])
        ]
