"""Serves a load step by step: first come, first served, requests join and leave at every step."""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from collections.abc import Sequence

from prefix_cache.errors import PromptTooLarge
from prefix_cache.simulate.allocators import Allocator, Holding
from prefix_cache.simulate.outcome import Outcome
from prefix_cache.simulate.preemption import RECOMPUTE_NEWEST, Preemption
from prefix_cache.simulate.request import Request
from prefix_cache.simulate.running import Running
from prefix_cache.simulate.server import Server

MAX_RUNNING = 256
"""Sequences of one step."""
MAX_PROMPT_TOKENS = 2_560
"""Tokens of prompts that one step computes, unless a single one is longer."""


def serve(
    requests: Sequence[Request],
    allocator: Allocator,
    server: Server,
    preemption: Preemption = RECOMPUTE_NEWEST,
) -> Outcome:
    """Serve all requests, which come in the order of their arrival.

    A step computes the prompts that are taken in, and a token of each sequence that runs
    already.  Raises PromptTooLarge for a request that memory cannot hold even alone.
    """
    serving = _Serving(requests, allocator, server, preemption)
    while serving.goes_on():
        serving.step()
    return serving.outcome


class _Serving:
    """The clock, who waits and who runs."""

    def __init__(
        self,
        requests: Sequence[Request],
        allocator: Allocator,
        server: Server,
        preemption: Preemption,
    ) -> None:
        self.outcome = Outcome()
        self._allocator = allocator
        self._server = server
        self._preemption = preemption
        self._block_size = allocator.block_size
        self._arrivals = deque(requests)
        self._num_requests = len(requests)
        self._clock = 0.0
        self._waiting: deque[Running] = deque()
        self._running: list[Running] = []  # in the order of their arrival
        # The next that waits found no room, and nobody has left since; and that was memory.
        self._is_blocked = self._is_short = False

    def goes_on(self) -> bool:
        """Let those arrive whose time has come; False when all is done."""
        if not self._running and not self._waiting and self._arrivals:
            self._clock = max(self._clock, self._arrivals[0].arrival_s)
        while self._arrivals and self._arrivals[0].arrival_s <= self._clock:
            self._waiting.append(Running(self._arrivals.popleft()))
        return bool(self._running or self._waiting)

    def step(self) -> None:
        """Take one step, or as many as nothing but tokens changes in."""
        steps = self._quiet_steps()
        if steps > 1:
            self._decode(steps)
        else:
            self._mixed_step()
        self._leave()

    # --- nobody comes and nobody goes -------------------------------------------------------

    def _quiet_steps(self) -> int:
        if not self._running or (self._waiting and not self._is_blocked):
            return 1
        holdings = [_held(one) for one in self._running]
        return min(
            self._allocator.sure_steps(holdings), min(one.remaining for one in self._running)
        )

    def _decode(self, most: int) -> None:
        """Go on by up to ``most`` tokens, until somebody arrives who need not wait."""
        until = math.inf
        if self._arrivals and not self._waiting:
            until = self._arrivals[0].arrival_s
        sequences, context = self._load()
        began, steps = self._clock, 0
        while steps < most and self._clock < until:
            self._clock += self._server.step_s(
                new_tokens=sequences, context_tokens=context, block_size=self._block_size
            )
            context += sequences
            steps += 1
        half_s, half_of_tokens = (self._clock - began) / 2, steps * len(self._running) / 2
        self._measure(half_s, half_of_tokens)
        for one in self._running:
            self._allocator.grow(_held(one), steps)
            one.generated += steps
        self._measure(half_s, half_of_tokens)

    # --- a step in which requests may come, or have to go -----------------------------------

    def _mixed_step(self) -> None:
        copied = self._allocator.copied_tokens
        moved_s = self._make_room()
        going_on = list(self._running)
        sequences, context = self._load()
        prefill_flops = 0
        joined: list[Running] = []
        if not self._is_blocked:
            loaded_s, prefill_flops, joined = self._admit()
            moved_s += loaded_s
        seconds = moved_s + self._server.step_s(
            new_tokens=sequences,
            context_tokens=context,
            prefill_flops=prefill_flops,
            block_size=self._block_size,
            copied_tokens=self._allocator.copied_tokens - copied,
        )
        self._clock += seconds
        self._measure(seconds, len(going_on) + len(joined))
        for one in (*going_on, *joined):
            one.generated += 1
        for one in joined:
            one.first_token_s = one.first_token_s or self._clock

    def _make_room(self) -> float:
        """Let all that run grow by a token, preempting some where there is too little memory.

        Returns the seconds that moving their KV to the host takes.
        """
        moved_s = 0.0
        grown = 0
        while grown < len(self._running):
            if self._allocator.grow(_held(self._running[grown]), 1):
                grown += 1
                continue
            if len(self._running) == 1:
                raise self._too_large(self._running[0].request)
            victim = self._preemption.choose(self._running)
            place = self._running.index(victim)
            grown -= place < grown
            moved_s += self._preempt(victim)
        return moved_s

    def _preempt(self, victim: Running) -> float:
        holding = _held(victim)
        moved_s = 0.0
        if self._preemption.how == "swap":
            victim.is_swapped = True
            moved_s = self._server.swap_s(holding.num_slots, self._block_size)
        self._allocator.close(holding)
        victim.holding = None
        self._running.remove(victim)
        self._waiting.appendleft(victim)
        self._is_blocked = self._is_short = True
        self.outcome.preemptions += 1
        return moved_s

    def _admit(self) -> tuple[float, int, list[Running]]:
        """Take in those that wait, in order, as long as there is room.

        Returns the seconds that moving KV from the host takes, the operations of the prompts to
        compute, and whose these are.
        """
        moved_s, flops, tokens = 0.0, 0, 0
        joined: list[Running] = []
        seats = MAX_RUNNING - sum(one.request.width for one in self._running)
        while self._waiting:
            one = self._waiting[0]
            request = one.request
            if tokens and tokens + one.context_tokens > MAX_PROMPT_TOKENS:
                break
            if request.width > seats and self._running:
                self._is_blocked, self._is_short = True, False
                break
            one.holding = self._allocator.open(request, one.generated - one.is_swapped)
            if one.holding is None and not self._running:
                raise self._too_large(request)
            if one.holding is None:
                self._is_blocked = self._is_short = True
                break
            self._waiting.popleft()
            insort(self._running, one, key=_arrival)
            seats -= request.width
            if one.is_swapped:
                one.is_swapped = False
                moved_s += self._server.swap_s(one.holding.num_slots, self._block_size)
                continue
            joined.append(one)
            tokens += one.context_tokens
            flops += self._prefill_flops(one, one.holding.num_cached_tokens)
        return moved_s, flops, joined

    def _prefill_flops(self, one: Running, cached_tokens: int) -> int:
        request = one.request
        if not one.generated:
            self.outcome.prompt_tokens += request.prompt_tokens
            self.outcome.cached_tokens += cached_tokens
        flops = self._server.prefill_flops(one.context_tokens - cached_tokens, cached_tokens)
        if one.generated and request.width > 1:  # each has an answer of its own to compute again
            again = self._server.prefill_flops(one.generated, request.prompt_tokens)
            flops += (request.width - 1) * again
        return flops

    def _leave(self) -> None:
        done = [one for one in self._running if not one.remaining]
        for one in done:
            self._allocator.close(_held(one))
            self._running.remove(one)
            self.outcome.finish(one, self._clock)
            self._is_blocked = False

    def _too_large(self, request: Request) -> PromptTooLarge:
        num_slots = self._allocator.num_slots
        return PromptTooLarge(
            f"a request of {request.width} sequences needs more than all {num_slots} slots of KV "
            "memory",
            num_slots=num_slots,
        )

    # --- inside -----------------------------------------------------------------------------

    def _load(self) -> tuple[int, int]:
        """Sequences that run, and the tokens that they attend to in all."""
        sequences = context = 0
        for one in self._running:
            sequences += one.request.width
            context += one.request.width * one.context_tokens
        return sequences, context

    def _measure(self, seconds: float, generated: float) -> None:
        """Count seconds of memory as it is, while the load is what ``Outcome`` says."""
        answered = len(self.outcome.answered)
        if self._num_requests // 4 <= answered and (
            self._arrivals or self._waiting or answered < self._num_requests / 2
        ):
            is_short = bool(self._waiting) and self._is_short
            usage = self._allocator.usage()
            self.outcome.measure(usage, seconds, len(self._running), generated, is_short)


def _held(one: Running) -> Holding:
    assert one.holding is not None
    return one.holding


def _arrival(one: Running) -> float:
    return one.request.arrival_s
