"""A request while it is served."""

from __future__ import annotations

from dataclasses import dataclass

from prefix_cache.simulate.allocators import Holding
from prefix_cache.simulate.request import Request


@dataclass(slots=True, eq=False)
class Running:
    """A request, how many tokens of each answer are generated, and its memory while it has some.

    ``is_swapped``: its KV is on the host.
    """

    request: Request
    generated: int = 0
    holding: Holding | None = None
    is_swapped: bool = False
    first_token_s: float | None = None

    @property
    def context_tokens(self) -> int:
        """Tokens that each of its sequences attends to when it goes on by a token."""
        return self.request.prompt_tokens + self.generated

    @property
    def remaining(self) -> int:
        """Tokens of each answer still to generate."""
        return self.request.answer_tokens - self.generated
