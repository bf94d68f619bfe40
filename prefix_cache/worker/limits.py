"""What fits: requests that never will are refused before they begin."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prefix_cache.errors import InvalidArgument, InvalidTokens, PromptTooLarge
from prefix_cache.index.tokens import as_token_bytes
from prefix_cache.worker.request import GenerationRequest


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one request: tokens of prompt and answer together, answers or beams, and blocks.

    A request that ``check`` lets through can always be finished when it has the pool to itself.
    """

    vocab_size: int
    max_model_len: int
    max_n: int
    num_blocks: int
    block_size: int

    def check(self, request: GenerationRequest) -> None:
        """Raise InvalidArgument, InvalidTokens or PromptTooLarge, naming the number that fits.

        InvalidTokenType for a prompt that is no flat sequence of integers.
        """
        params, prompt = request.params, request.prompt_ids
        self._check_tokens(np.frombuffer(as_token_bytes(prompt), "<u4"))
        for name, value in (("n", params.n), ("beam_width", params.beam_width)):
            if value > self.max_n:
                raise InvalidArgument(
                    f"{name} is {value}, expected at most {self.max_n}", **{name: value}
                )
        width = params.beam_width or params.n
        room = self.room(len(prompt), width)
        if room < 1:
            raise PromptTooLarge(
                f"the prompt has {len(prompt)} tokens, at most {self._longest_prompt(width)} fit",
                num_tokens=len(prompt),
                limit=self._longest_prompt(width),
            )
        if params.max_tokens > room:
            raise InvalidArgument(
                f"max_tokens is {params.max_tokens}, at most {room} fit after a prompt of "
                f"{len(prompt)} tokens",
                max_tokens=params.max_tokens,
                limit=room,
            )

    def room(self, num_prompt_tokens: int, width: int = 1) -> int:
        """Tokens that ``width`` answers or beams may have after such a prompt; 0 where none fit.

        The full blocks of the prompt are shared.  The last token of an answer needs no slot.
        """
        shared = num_prompt_tokens // self.block_size
        own = (self.num_blocks - shared) // width
        slots = (shared + own) * self.block_size
        return max(0, min(self.max_model_len, slots + 1) - num_prompt_tokens)

    def _check_tokens(self, prompt: npt.NDArray[np.uint32]) -> None:
        if not len(prompt):
            raise InvalidTokens("the prompt is empty, expected at least one token")
        position = int(prompt.argmax())
        token = int(prompt[position])
        if token >= self.vocab_size:
            raise InvalidTokens(
                f"token {position} is {token}, expected 0 to {self.vocab_size - 1}",
                index=position,
                value=token,
            )

    def _longest_prompt(self, width: int) -> int:
        longest = min(self.max_model_len - 1, self.num_blocks * self.block_size)
        while longest and not self.room(longest, width):
            longest -= 1
        return longest
