"""One sampled answer: its text as it grows, and when it ends."""

from __future__ import annotations

from prefix_cache.worker.request import FinishReason
from prefix_cache.worker.sampling import SamplingParams
from prefix_cache.worker.stop_strings import StopStrings
from prefix_cache.worker.stream_decoder import StreamDecoder
from prefix_cache.worker.tokenizer import Tokenizer


class Answer:
    """Takes the tokens of one answer, which comes ``after`` the last token of its prompt."""

    def __init__(
        self, params: SamplingParams, index: int, tokenizer: Tokenizer, after: int
    ) -> None:
        self.index = index
        self.generator = params.generator(index)
        self.finish_reason: FinishReason | None = None
        self._params = params
        self._eos_ids = frozenset() if params.ignore_eos else tokenizer.eos_ids
        self._decoder = StreamDecoder(tokenizer, after)
        self._stop = StopStrings(params.stop)
        self._num_tokens = 0

    def add(self, token_id: int) -> str:
        """Return the text that can be shown now; sets ``finish_reason`` with the last token."""
        self._num_tokens += 1
        text = ""
        if token_id in self._eos_ids:
            self.finish_reason = "stop"
        else:
            text = self._stop.add(self._decoder.add(token_id))
            if self._stop.matched is not None:
                self.finish_reason = "stop"
            elif self._num_tokens == self._params.max_tokens:
                self.finish_reason = "length"
        if self.finish_reason is not None:
            text += self._stop.add(self._decoder.finish()) + self._stop.finish()
        return text
