"""A conversation whose turns have equally many new tokens."""

from __future__ import annotations

from tests.bench.prompts import BLOCK_SIZE, random_tokens, unique_token
from tests.bench.scale import Scale


class Dialogue:
    """A conversation that shares nothing with another one."""

    def __init__(self, scale: Scale) -> None:
        self.opening = unique_token() + random_tokens(BLOCK_SIZE - 1)
        self.question = random_tokens(scale.question, seed=1)
        self.answer = random_tokens(scale.answer, seed=2)
        self._history = self.opening

    def next_turn(self) -> tuple[bytes, bytes]:
        """All that the next prompt says, and that together with its answer."""
        prompt = self._history + self.question
        self._history = prompt + self.answer
        return prompt, self._history
