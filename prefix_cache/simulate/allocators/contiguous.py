"""Engines before paging: a sequence lies in one place, which is reserved when it begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from prefix_cache.errors import PromptTooLarge
from prefix_cache.simulate.allocators.allocator import Usage
from prefix_cache.simulate.allocators.buddy import Buddy
from prefix_cache.simulate.request import Request

Reserve = Callable[[Request], int]
"""Slots to reserve for one sequence of a request."""


@dataclass(slots=True, eq=False)
class Places:
    """Where the sequences of a request lie: ``reserved`` slots from each of ``starts`` on."""

    request: Request
    starts: list[int]
    reserved: int
    num_fed: int
    num_cached_tokens: int = 0
    branched: int = 0

    @property
    def num_slots(self) -> int:
        """Slots taken."""
        return len(self.starts) * Buddy.size_of(self.reserved)


class Contiguous:
    """Places from a buddy allocator; nothing is shared, and a beam that branches is copied."""

    block_size = None

    def __init__(self, name: str, num_slots: int, reserve: Reserve) -> None:
        self.name = name
        self.num_slots = num_slots
        self.copied_tokens = 0
        self._reserve = reserve
        self._buddy = Buddy(num_slots)
        # Sums over all that is open.
        self._tokens = self._final = self._reserved = 0

    def open(self, request: Request, num_fed: int) -> Places | None:
        """Reserve a place for each sequence; None, PromptTooLarge: as the interface says."""
        reserved = max(self._reserve(request), request.final_tokens)
        needed = request.width * Buddy.size_of(reserved)
        if needed > self.num_slots:
            raise PromptTooLarge(
                f"{self.name} needs {needed} slots for a request of {request.width} x {reserved} "
                f"tokens, and there are {self.num_slots}",
                needed=needed,
                num_slots=self.num_slots,
            )
        starts: list[int] = []
        while len(starts) < request.width:
            start = self._buddy.take(reserved)
            if start is None:
                for taken in starts:
                    self._buddy.give_back(taken, reserved)
                return None
            starts.append(start)
        self._count(request, request.prompt_tokens + num_fed, reserved)
        self.copied_tokens += (request.width - 1) * request.prompt_tokens
        return Places(request, starts, reserved, num_fed)

    def sure_steps(self, holdings: Sequence[Places]) -> int:
        """Return the steps until a beam branches: room is reserved."""
        return min(
            (
                holding.request.branches[holding.branched].step - holding.num_fed
                for holding in holdings
                if holding.branched < len(holding.request.branches)
            ),
            default=self.num_slots,
        )

    def grow(self, holding: Places, steps: int) -> bool:
        """Feed tokens, copying what branches; there is always room."""
        request = holding.request
        holding.num_fed += steps
        self._tokens += request.width * steps
        for branch in request.branches[holding.branched :]:
            if branch.step >= holding.num_fed:
                break
            self.copied_tokens += request.prompt_tokens + branch.step
            holding.branched += 1
        return True

    def close(self, holding: Places) -> None:
        """Give the places back."""
        for start in holding.starts:
            self._buddy.give_back(start, holding.reserved)
        request = holding.request
        self._count(request, request.prompt_tokens + holding.num_fed, holding.reserved, sign=-1)

    def usage(self) -> Usage:
        """Return what memory is used for now."""
        given = self.num_slots - self._buddy.free
        return Usage(
            tokens=self._tokens,
            reserved=self._final - self._tokens,
            internal=self._reserved - self._final,
            rounding=given - self._reserved,
            free=self._buddy.free,
            unshared=given,
        )

    def _count(self, request: Request, tokens: int, reserved: int, sign: int = 1) -> None:
        count = sign * request.width
        self._tokens += count * tokens
        self._final += count * request.final_tokens
        self._reserved += count * reserved


def reserve_max(num_slots: int, max_length: int) -> Contiguous:
    """Return the allocator that reserves the longest length that is served."""
    return Contiguous("reserve_max", num_slots, lambda request: max_length)


def pow2(num_slots: int, max_length: int) -> Contiguous:
    """Return the one that guesses the answer to the next power of two, as if by good luck."""
    return Contiguous(
        "pow2",
        num_slots,
        lambda request: min(
            request.prompt_tokens + Buddy.size_of(request.answer_tokens), max_length
        ),
    )


def oracle(num_slots: int, max_length: int) -> Contiguous:
    """Return the one that knows how long the answer will be."""
    return Contiguous("oracle", num_slots, lambda request: request.final_tokens)
