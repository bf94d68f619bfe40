"""What the simulation asks of whoever manages KV memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prefix_cache.simulate.request import Request


@dataclass(frozen=True, slots=True)
class Usage:
    """KV memory at one moment, in slots of a token; they add up to all there are.

    ``tokens`` hold a token, ``reserved`` will hold one that their sequence has yet to generate,
    ``internal`` never will though they are given to a sequence, ``rounding`` is what placement
    adds to what was asked for, ``free`` the rest.  ``unshared`` is what would be given away if
    no sequence shared with another.
    """

    tokens: int
    reserved: int
    internal: int
    rounding: int
    free: int
    unshared: int


class Holding(Protocol):
    """Memory of one request's sequences."""

    num_fed: int
    """Tokens of each answer that have KV."""
    num_cached_tokens: int
    """Tokens of the prompt that had KV when it was opened."""

    @property
    def num_slots(self) -> int:
        """Slots that it takes, shared ones once."""
        ...


class Allocator(Protocol):
    """KV memory of a server; a ``holding`` is what its own ``open`` returned."""

    name: str
    num_slots: int
    copied_tokens: int
    """Tokens whose KV had to be copied so far."""

    @property
    def block_size(self) -> int | None:
        """Tokens that lie together; None where a sequence lies as a whole."""
        ...

    def open(self, request: Request, num_fed: int) -> Holding | None:
        """Return memory for a request of whose answers ``num_fed`` tokens are fed.

        None where there is no room now.  Raises PromptTooLarge where there never will be.
        """
        ...

    def sure_steps(self, holdings: Sequence[Any]) -> int:
        """Return by how many tokens each sequence can surely grow now; 0: that is not known."""
        ...

    def grow(self, holding: Any, steps: int) -> bool:
        """Feed ``steps`` more tokens to each sequence.

        False where memory ran out in between: call again when there is more, or close.
        """
        ...

    def close(self, holding: Any) -> None:
        """Give the memory back."""
        ...

    def usage(self) -> Usage:
        """Return what memory is used for now."""
        ...
